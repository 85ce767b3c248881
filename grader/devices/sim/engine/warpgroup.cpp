#include "warpgroup.h"

#include <algorithm>

#include "block.h"
#include "operation.h"

namespace sim {

namespace {

constexpr u32 WARPS = 4, CHUNK = 16;

}  // namespace

Warpgroups::Warpgroups(Block& block)
    : block_(block), groups_((block.warps.size() + WARPS - 1) / WARPS), states_(block.warps.size()) {
    for (State& state : states_) state.rows.resize(block.program->row_bytes / ROW_STEP + 1);
    readings_.resize((block.shared.bytes() / CHUNK + 1) * groups_.size());
}

void Warpgroups::forget() {
    verified_ = 0;
    read_unwritten_ = false;
    if (!any_) return;
    any_ = false;
    for (Group& group : groups_) group = {};
    for (State& state : states_) {
        std::fill(state.rows.begin(), state.rows.end(), Row());
        state.written.clear();
        state.fenced = false;
        state.done = state.last_group = state.last_pc = 0;
    }
    std::fill(readings_.begin(), readings_.end(), Reading());
}

u32 Warpgroups::warp_index(const Warp& warp) {
    return warp.index;
}

void Warpgroups::stop(const Warp& warp, u32 pc, FindingKind kind, const std::string& message) const {
    block_.stop_at(block_.at(warp, pc, 0, kind, message));
}

std::string Warpgroups::line(u32 pc) const {
    return block_.line_words(pc);
}

// ---- four warps in step

void Warpgroups::step(Warp& warp, u64 a, u64 b) {
    any_ = true;
    Group& group = group_of(warp);
    const u32 first = warp.index / WARPS * WARPS;
    for (u32 i = first; i < first + WARPS; ++i)
        if (i >= block_.warps.size() || block_.warps[i].existing != ALL)
            stop(
                warp, warp.here, FindingKind::deadlock,
                "executes " + block_.program->code[warp.here].entry->form +
                    " in a warpgroup that is not whole: it takes four warps, from a multiple of four on, of 32 threads "
                    "each");
    const u64 number = group.at[warp.index % WARPS]++;
    if (number == group.first + group.steps.size()) {
        group.steps.push_back({warp.here, warp.index, a, b});
        for (u32 i = first; i < first + WARPS; ++i)
            if (!block_.warps[i].alive) left_out(block_.warps[i], group.steps.back());
    } else {
        const Step& other = group.steps[size_t(number - group.first)];
        if (other.pc != warp.here && block_.line_of(other.pc).line != block_.line_of(warp.here).line)
            stop(
                warp, warp.here, FindingKind::deadlock,
                "warp " + std::to_string(warp.index) + " of the block is at this wgmma instruction, while warp " +
                    std::to_string(other.warp) + " of its warpgroup has come to " + line(other.pc));
        if (other.a != a || other.b != b)
            stop(
                warp, warp.here, FindingKind::crash,
                "warp " + std::to_string(warp.index) + " and warp " + std::to_string(other.warp) +
                    " of its warpgroup give different matrix descriptors");
    }
    const u64 least = *std::min_element(group.at, group.at + WARPS);
    while (group.first < least) {
        group.steps.pop_front();
        group.first += 1;
    }
}

void Warpgroups::fence(Warp& warp) {
    State& state = state_of(warp);
    state.fenced = true;
    for (const s32 row : state.written) row_at(warp, row).written = false;
    state.written.clear();
}

void Warpgroups::commit(Warp& warp) {
    Group& group = group_of(warp);
    group.committed[warp.index % WARPS] += 1;
    for (u32 i = 0; i < WARPS; ++i) {
        if (!(group.waiting >> i & 1)) continue;
        Warp& other = block_.warps[warp.index / WARPS * WARPS + i];
        other.at_barrier = 0;
    }
    group.waiting = 0;
}

bool Warpgroups::wait(Warp& warp, u32 groups_left) {
    Group& group = group_of(warp);
    const u32 mine = group.committed[warp.index % WARPS], until = mine > groups_left ? mine - groups_left : 0;
    if (*std::min_element(group.committed, group.committed + WARPS) < until) {
        group.waiting |= Mask(1) << warp.index % WARPS;
        warp.at_barrier = warp.alive;
        return false;
    }
    State& state = state_of(warp);
    state.done = std::max(state.done, until);
    state.wait = {true, warp.here, groups_left, mine};
    const u32 component = warpgroup_of_rank(block_.rank, warp.index / WARPS);
    if (until > warp.known.at(component)) warp.known.set(component, until);
    return true;
}

void Warpgroups::deadlock() {
    for (u32 g = 0; g < groups_.size(); ++g) {
        if (!groups_[g].waiting) continue;
        const u32 mine = u32(__builtin_ctz(groups_[g].waiting));
        const Warp& warp = block_.warps[g * WARPS + mine];
        const u32* committed = groups_[g].committed;
        const u32 other = u32(std::min_element(committed, committed + WARPS) - committed);
        const Warp& missing = block_.warps[g * WARPS + other];
        const u32 pc = missing.pc[missing.alive ? __builtin_ctz(missing.alive) : 0];
        stop(
            warp, warp.pc[0], FindingKind::deadlock,
            "warp " + std::to_string(warp.index) + " waits for a group of wgmma that warp " +
                std::to_string(missing.index) + " of its warpgroup has not committed: that one " +
                (missing.alive ? "is on " : "has exited on ") + line(pc));
    }
}

void Warpgroups::exit(Warp& warp) {
    if (!any_) return;
    State& state = state_of(warp);
    if (state.last_group > state.done)  // later groups are empty
        stop(
            warp, state.last_pc, FindingKind::race,
            "exits while this wgmma is under way: commit its group and wait for it (wgmma.wait_group 0)");
    const Group& group = group_of(warp);
    const u64 next = group.at[warp.index % WARPS] - group.first;
    if (next < group.steps.size()) left_out(warp, group.steps[size_t(next)]);
}

// .aligned: all of the warpgroup execute the instruction, or none of it.
void Warpgroups::left_out(const Warp& missing, const Step& step) const {
    stop(
        block_.warps[step.warp], step.pc, FindingKind::deadlock,
        "warp " + std::to_string(step.warp) + " of the block has come to this wgmma instruction, and warp " +
            std::to_string(missing.index) + " of its warpgroup has exited without it: all four warps must execute it");
}

// ---- registers

bool Warpgroups::in_use(const Warp& warp, const Row& row) {
    return row.group > state_of(warp).done && !warp.launch->forgives_copies;
}

std::string Warpgroups::too_early(const Warp& warp, u32 group) const {
    const State& state = states_[warp_index(warp)];
    if (group > groups_[warp_index(warp) / WARPS].committed[warp.index % WARPS])
        return ": nothing has committed it to a group so far (wgmma.commit_group)";
    const State::Wait& wait = state.wait;
    if (!wait.any || wait.committed < group) return ": its group has been committed, and no wait has come since";
    const u32 place = wait.committed - group + 1, left = wait.groups_left;
    return ": the last wait, on " + line(wait.pc) + ", leaves the " +
           (left == 1 ? "newest group" : std::to_string(left) + " newest groups") +
           " in flight, and this product is in " +
           (place == 1 ? "the newest one" : "the one that is number " + std::to_string(place) + " from the newest");
}

void Warpgroups::read_row(Warp& warp, s32 row) {
    const Row& its = row_at(warp, row);
    if (!in_use(warp, its) || !its.accumulates) return;
    stop(
        warp, warp.here, FindingKind::race,
        "reads the accumulator of the wgmma on " + line(its.pc) + " before wgmma.wait_group has waited for it" +
            too_early(warp, its.group));
}

void Warpgroups::write_row(Warp& warp, s32 row, bool constant) {
    Row& its = row_at(warp, row);
    if (in_use(warp, its))
        stop(
            warp, warp.here, FindingKind::race,
            std::string("writes a register of the ") + (its.accumulates ? "accumulator" : "operand") +
                " of the wgmma on " + line(its.pc) + " before wgmma.wait_group has waited for it" +
                too_early(warp, its.group));
    its.writer = warp.here;
    its.set = true;
    if (its.written || constant) return;
    its.written = true;
    state_of(warp).written.push_back(row);
}

// ptxas makes nothing of copies at the ends of loops: the register has another name.
void Warpgroups::rename_row(Warp& warp, s32 to, s32 from) {
    const Row source = row_at(warp, from);
    if (!in_use(warp, source) && in_use(warp, row_at(warp, to))) return write_row(warp, to, false);
    const bool listed = row_at(warp, to).written;
    row_at(warp, to) = source;
    if (source.written && !listed) state_of(warp).written.push_back(to);
}

void Warpgroups::use_rows(Warp& warp, const s32* rows, int accumulators, int sources, bool adds) {
    State& state = state_of(warp);
    const u32 group = group_of(warp).committed[warp.index % WARPS] + 1;
    if (!state.fenced)
        stop(warp, warp.here, FindingKind::race, "multiplies with no wgmma.fence before the first wgmma of the warp");
    const auto& elsewhere = block_.program->set_elsewhere;
    const auto is_unset = [&](s32 row) { return !row_at(warp, row).set && !elsewhere.count(row); };
    const auto unset = adds ? std::count_if(rows, rows + accumulators, is_unset) : 0;
    if (unset)
        stop(
            warp, warp.here, FindingKind::uninitialised,
            "adds a product to sums that nothing has set: scale-d is 1, and no instruction has written " +
                (unset == accumulators
                     ? "the registers"
                     : std::to_string(unset) + " of the " + std::to_string(accumulators) + " registers") +
                " of its accumulator so far");
    for (int i = 0; i < accumulators + sources; ++i) {
        Row& row = row_at(warp, rows[i]);
        if (row.written && !warp.launch->forgives_copies)
            stop(
                warp, row.writer, FindingKind::race,
                "writes a register that the wgmma on " + line(warp.here) + " uses, with no wgmma.fence between");
        row.group = group;
        row.pc = warp.here;
        row.accumulates = i < accumulators;
        row.set |= row.accumulates;
    }
    state.last_group = group;
    state.last_pc = warp.here;
}

Warpgroups::Converted& Warpgroups::converted(const Warp& warp) {
    return group_of(warp).converted;
}

// ---- shared memory

namespace {

bool knows(const Warp& warp, u32 thread, u32 clock) {
    if (warp.known.covers(thread, clock)) return true;
    return std::any_of(
        warp.parts.begin(), warp.parts.end(), [&](auto& part) { return part.known.covers(thread, clock); });
}

// A product has read what is written only now.
[[noreturn]] void stop_late_write(
    Block& owner, const Warp& writer, int lane, u64 chunk, u32 product, const LastWait& wait) {
    const bool bulk = owner.program->code[writer.here].entry->is_bulk();
    const std::string who = writer.block->thread(writer.thread(lane)) +
                            (writer.block == &owner ? "" : " of block rank " + std::to_string(writer.block->rank));
    Finding finding = *owner.pending;
    finding.kind = FindingKind::race;
    finding.message = "race on " + owner.shared_place(chunk, CHUNK, false).text + " in shared memory: the wgmma on " +
                      owner.line_words(product) + " reads it before " + (bulk ? "the bulk copy of " : "") + who +
                      " on " + owner.line_words(writer.here) + " writes it, with no barrier between";
    const BulkCopy* copy = owner.copies.beginning();
    if (copy && !finding.phases.empty()) finding.phases[0] += owner.mbarriers.words_on_unannounced(wait, *copy);
    owner.stop_at(std::move(finding));
}

}  // namespace

void Warpgroups::read_chunk(Warp& warp, u64 address) {
    SharedMemory& shared = block_.shared;
    const auto place = [&] { return block_.shared_place(address, CHUNK, false).text + " in shared memory"; };
    if (address + CHUNK > shared.bytes())
        stop(
            warp, warp.here, FindingKind::out_of_bounds,
            "reads " + block_.shared_place(address, CHUNK, true).text + " in shared memory (" +
                std::to_string(shared.bytes()) + " bytes) by a matrix descriptor");
    u64 a[LANES] = {address};
    if (shared.uninitialised(1, a, CHUNK) >= 0) {
        block_.copies.check(warp, 1, a, CHUNK, Access::read);
        if (!block_.pending) {
            block_.pending = std::make_unique<Finding>(block_.at(
                warp, warp.here, 0, FindingKind::uninitialised,
                "reads " + place() + " by a matrix descriptor, which no thread has written"));
            block_.pending->phases = block_.mbarriers.words_on_unwritten(warp);
            read_unwritten_ = true;
            unwritten_wait_ = block_.mbarriers.last_wait(warp);
        }
    }
    for (u64 at = address; at < address + CHUNK; at += shared.granule_bytes()) {
        const Epoch writer = shared.last_writer(at);
        if (writer == verified_ && verified_by_ == warp.index) continue;
        const u32 thread = shared_epoch::thread(writer), clock = shared_epoch::clock(writer);
        const u32 pc = shared_epoch::pc(writer);
        const u32 rank = shared_epoch::rank(writer) ^ block_.rank;
        const bool own = rank == block_.rank;
        const bool known = own ? knows(warp, thread, clock)
                               : clock <= block_.origin ||
                                     warp.knows_component(0, warp_of_rank(rank, thread / LANES), thread % LANES, clock);
        const bool fenced = !own || block_.proxied.covers(thread, clock) || block_.program->code[pc].entry->is_bulk();
        if (!known || !fenced)
            stop(
                warp, warp.here, FindingKind::race,
                "race on " + place() + ": " + block_.thread(thread) + " writes it on " + line(pc) + ", the wgmma on " +
                    line(warp.here) + " reads it, with no " + (known ? "fence.proxy.async" : "barrier") + " between");
        verified_ = writer;
        verified_by_ = warp.index;
    }
    Reading& reading = readings_[address / CHUNK * groups_.size() + warp.index / WARPS];
    reading.group = group_of(warp).committed[warp.index % WARPS] + 1;
    reading.pc = warp.here;
}

// Who writes must know that the groups that read there are done.
void Warpgroups::check_write(Warp& warp, Mask mask, const u64* address, u32 bytes) const {
    if (!any_) return;
    each_lane(mask, [&](int l) {
        for (u64 chunk = address[l] / CHUNK; chunk <= (address[l] + bytes - 1) / CHUNK; ++chunk)
            for (u32 g = 0; g < groups_.size(); ++g) {
                const Reading& reading = readings_[chunk * groups_.size() + g];
                if (!reading.group) continue;
                if (warp.knows_component(l, warpgroup_of_rank(block_.rank, g), 0, reading.group)) continue;
                u64 place[LANES] = {chunk * CHUNK};
                if (read_unwritten_ && block_.shared.uninitialised(1, place, CHUNK) >= 0)
                    stop_late_write(block_, warp, l, *place, reading.pc, unwritten_wait_);
                check_waits(warp, g, reading, address[l], bytes);
                Finding finding = warp.block->at(
                    warp, warp.here, l, FindingKind::race,
                    "writes " + block_.shared_place(address[l], bytes, false).text + ", which the wgmma on " +
                        line(reading.pc) + " may still read: " + wanted(warp, g, reading.group));
                if (const std::string words = note_on_wait(warp, g, reading); !words.empty()) finding.phases = {words};
                warp.block->stop_at(std::move(finding));
            }
    });
}

// A bulk copy begins where a product may still read. Where all who released the place waited for the copy's mbarrier
// before the product, and for a phase that they had waited for before the release, too, the place was not theirs: the
// wait is wrong, and not the release.
void Warpgroups::check_waits(const Warp& writer, u32 warpgroup, const Reading& reading, u64 address, u32 bytes) const {
    const BulkCopy* copy = block_.copies.beginning();
    const MBarriers& theirs = writer.block->mbarriers;
    const LastWait& last = theirs.last_wait(writer);
    const Phase* release = copy ? theirs.phase_of(last) : nullptr;
    if (!release) return;
    const Warp* reader = nullptr;
    MBarriers::Twice twice;
    for (const PhaseStep& step : release->steps) {
        if (!step.arrivals || step.rank != block_.rank || step.warp / WARPS != warpgroup) continue;
        const MBarriers::Twice found =
            block_.mbarriers.waited_twice(block_.warps[step.warp], u64(copy->barrier), reading.group);
        if (!found.first || step.clock < found.first->clock || step.clock >= found.again->clock) return;
        if (reader) continue;
        reader = &block_.warps[step.warp];
        twice = found;
    }
    if (!reader || u64(twice.again->phase) >= copy->phase) return;
    const std::string phase = "phase " + std::to_string(twice.again->phase);
    Finding finding = block_.at(
        *reader, twice.again->pc, 0, FindingKind::race,
        "waits for " + phase + " of " + block_.mbarriers.name(u64(copy->barrier)) + ", which was over: the wait on " +
            block_.line_words(twice.first->pc) + " had been for it. So it does not wait for the bulk copy on " +
            block_.line_words(copy->pc) + ", which is of phase " + std::to_string(copy->phase) + ", and the wgmma on " +
            block_.line_words(reading.pc) + " reads " + block_.shared_place(address, bytes, false).text +
            " while the copy may write it");
    finding.phases = {theirs.words_on(last, "the wait before that copy")};
    block_.stop_at(std::move(finding));
}

std::string Warpgroups::wanted(const Warp& warp, u32 warpgroup, u32 group) const {
    const u32 first = warpgroup * WARPS;
    if (warp.block == &block_ && warp.index / WARPS == warpgroup) return "wait for its group first (wgmma.wait_group)";
    for (u32 i = first; i < first + WARPS && i < states_.size(); ++i)
        if (states_[i].done >= group) return "its warpgroup has waited for it, but no barrier has told this thread so";
    return "its warpgroup has not waited for it yet (wgmma.wait_group); this thread may write once a barrier says that "
           "it has";
}

// What the wait that let the warp write was for, and when those had arrived who multiply there.
std::string Warpgroups::note_on_wait(const Warp& warp, u32 warpgroup, const Reading& reading) const {
    const MBarriers& barriers = warp.block->mbarriers;
    const std::string words = barriers.words_on_last_wait(warp);
    const Phase* phase = barriers.phase_of(barriers.last_wait(warp));
    if (!phase) return words;
    const std::string product = "the wgmma on " + block_.line_words(reading.pc);
    bool any = false, began = true, not_yet = true;
    for (const PhaseStep& step : phase->steps) {
        if (!step.arrivals || step.rank != block_.rank || step.warp / WARPS != warpgroup) continue;
        any = true;
        (step.multiplied < reading.group ? began : not_yet) = false;
    }
    if (!any) return words + "; none of that phase came after a wait for " + product;
    return words + "; those of its warpgroup came before " + product +
           (began     ? " had been waited for"
            : not_yet ? " began"
                      : " was done");
}

}  // namespace sim
