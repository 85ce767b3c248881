#include "copies.h"

#include <algorithm>

#include "cluster.h"
#include "global_shadow.h"
#include "operation.h"
#include "trail.h"
#include "check_access.h"

namespace sim {

namespace {

constexpr u64 PADDING = 64;  // bytes between rows in shared memory, at most, that are copied together

constexpr size_t MOST_WAITS = 3;  // whose lines are listed

bool overlap(u64 a, u64 a_bytes, u64 b, u64 b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
}

// While it lives, a warp seems to stand at the copy that lands, at the time it was issued.
struct AtCopy {
    AtCopy(Warp& w, u32 pc, u32 clock) : warp(w), here(w.here), now(w.clock) {
        warp.here = pc;
        if (clock) warp.clock = clock;
    }
    ~AtCopy() {
        warp.here = here;
        warp.clock = now;
    }
    Warp& warp;
    u32 here, now;
};

// While it lives, what is written is a copy's own landing.
struct Landing {
    explicit Landing(bool& f) : flag(f) { flag = true; }
    ~Landing() { flag = false; }
    bool& flag;
};

}  // namespace

void Copies::forget() {
    if (!any_) return;
    beginning_ = nullptr;
    for (auto& copies : flying_) copies.clear();
    loads_.clear();
    stores_.clear();
    std::fill(committed_[0], committed_[0] + WARPS_PER_BLOCK * LANES, 0);
    std::fill(waits_[0], waits_[0] + WARPS_PER_BLOCK * LANES, Wait{});
    std::fill(committed_bulk_[0], committed_bulk_[0] + WARPS_PER_BLOCK * LANES, 0);
    any_ = false;
}

// ---- copies of 4, 8 and 16 bytes

void Copies::issue(Warp& warp, Copy copy) {
    any_ = true;
    std::copy(committed_[warp.index], committed_[warp.index] + LANES, copy.group);
    if (block_.shared.in_flight(copy.mask, copy.to, copy.bytes)) check_group(warp, copy);
    block_.shared.depart(copy.mask, copy.to, copy.bytes);
    flying_[warp.index].push_back(copy);
}

// The copies of one group land in any order: two to the same bytes are undefined (PTX ISA, "cp.async"). Copies of other
// threads to them are found when they land.
void Copies::check_group(const Warp& warp, const Copy& copy) const {
    for (const Copy& earlier : flying_[warp.index]) {
        if (earlier.barrier >= 0) continue;
        each_lane(earlier.mask & copy.mask, [&](int l) {
            if (earlier.group[l] != copy.group[l]) return;
            if (!overlap(earlier.to[l], earlier.bytes, copy.to[l], copy.bytes)) return;
            block_.stop_at(block_.at(
                warp, copy.pc, l, FindingKind::race,
                "writes " + block_.shared_place(copy.to[l], copy.bytes, false).text + ", and so does the cp.async on " +
                    block_.line_words(earlier.pc) + " in the same group: they may land in any order"));
        });
    }
}

void Copies::commit(const Warp& warp, Mask mask) {
    any_ = true;
    each_lane(mask, [&](int l) { committed_[warp.index][l] += 1; });
}

void Copies::wait(Warp& warp, Mask mask, u32 groups_left, bool of_all) {
    auto& flying = flying_[warp.index];
    const u32* committed = committed_[warp.index];
    each_lane(mask, [&](int l) {
        Wait& last = waits_[warp.index][l];
        const bool is_again = last.any && last.committed == committed[l];
        const u32 before = last.any ? last.pc : warp.here;
        last = {warp.here, groups_left, committed[l], is_again ? last.without + 1 : 0, before, true, of_all};
    });
    for (Copy& copy : flying) {
        if (copy.barrier >= 0) continue;
        Mask ready = 0;
        for (int l = 0; l < LANES; ++l) ready |= Mask(u64(copy.group[l]) + groups_left < committed[l]) << l;
        ready &= mask & copy.mask;
        if (ready) land(copy, ready);
        copy.mask &= ~ready;
    }
    while (!flying.empty() && !flying.front().mask) flying.pop_front();
}

void Copies::hand_over(const Warp& warp, Mask mask, s64 barrier, u32 clock) {
    auto& flying = flying_[warp.index];
    const size_t count = flying.size();
    for (size_t i = 0; i < count; ++i) {
        const Mask mine = flying[i].mask & mask;
        if (!mine || flying[i].barrier >= 0) continue;
        Copy attached = flying[i];
        flying[i].mask &= ~mine;
        attached.mask = mine;
        attached.barrier = barrier;
        attached.clock = clock;
        flying.push_back(attached);
    }
    while (!flying.empty() && !flying.front().mask) flying.pop_front();
}

void Copies::add_source(const Warp& warp, int lane, u64 from, u32 bytes, std::vector<CopySource>& found) const {
    GlobalShadow* shadow = warp.launch->global_shadow;
    const Allocation* allocation = shadow && bytes ? warp.launch->memory->find(from) : nullptr;
    if (allocation && allocation->writable)
        found.push_back({lane, from, bytes, shadow->writers(*allocation, from, bytes)});
}

CopySources Copies::sources(const Warp& warp, Mask mask, const u64* from, const u32* bytes) const {
    std::vector<CopySource> found;
    each_lane(mask, [&](int l) { add_source(warp, l, from[l], bytes[l], found); });
    return found.empty() ? nullptr : std::make_shared<const std::vector<CopySource>>(std::move(found));
}

// What a copy reads may be overwritten once the copy has been waited for, and not before, by its own thread either.
void Copies::check_sources(const Warp& warp, u32 pc, const CopySources& sources, Mask lanes) const {
    if (!sources) return;
    GlobalShadow& shadow = *warp.launch->global_shadow;
    for (const CopySource& source : *sources) {
        if (!(lanes >> source.lane & 1)) continue;
        const Allocation& allocation = *warp.launch->memory->find(source.address);
        if (allocation.freed) continue;
        const std::vector<Epoch> now = shadow.writers(allocation, source.address, source.bytes);
        for (size_t i = 0; i < now.size(); ++i) {
            if (now[i] == source.writers[i]) continue;
            const u64 at = std::max(source.address, shadow.granule(source.address) + i * shadow.granule_bytes());
            const u32 item = allocation.itemsize ? allocation.itemsize : 4;
            const Place place = inside(allocation.name, s64(at - allocation.base), item, item);
            Finding finding = race_of_copy(warp, pc, source.lane, now[i], "race on " + place.text);
            finding.buffer = allocation.name;
            finding.index = place.index;
            finding.has_index = true;
            block_.stop_at(std::move(finding));
        }
    }
}

void Copies::land(const Copy& copy, Mask lanes) {
    Warp& warp = block_.warps[copy.warp];
    check_sources(warp, copy.pc, copy.sources, lanes);
    const AtCopy at_copy(warp, copy.pc, copy.clock);
    const Landing landing(landing_);
    u8* at[LANES];
    check_shared_at(warp, block_, block_.program->code[copy.pc], copy.to, lanes, copy.bytes, Access::write, at);
    each_lane(lanes, [&](int l) { std::memcpy(at[l], copy.data[l], copy.bytes); });
    block_.shared.arrive(lanes, copy.to, copy.bytes);
    if (Trail* trail = block_.launch->trail) trail->note_landed(warp, copy.pc, lanes, copy.to, copy.bytes, at);
}

// ---- bulk copies

// A load writes, as far as others can tell, from now on: what comes before must be known to its thread now.
void Copies::issue_bulk(Warp& warp, BulkCopy copy) {
    any_ = true;
    copy.group = committed_bulk_[warp.index][copy.lane];
    check_fence(warp, copy);
    if (copy.barrier < 0) {
        record_bulk(warp, copy, Access::read);
        stores_.push_back(std::move(copy));
        return;
    }
    // Several blocks may add to one place meanwhile; who reads it too early is found by its clocks.
    beginning_ = &copy;
    record_bulk(warp, copy, copy.combine ? Access::atomic : Access::write);
    beginning_ = nullptr;
    if (copy.combine) {
        loads_.push_back(std::move(copy));
        return;
    }
    u64 to[LANES];
    for (u64 done = 0; done < copy.extent; done += Copy::MOST) {
        if (!copy.written.empty() && !copy.written[done]) continue;
        to[copy.lane] = copy.shared + done;
        block_.shared.depart(Mask(1) << copy.lane, to, u32(std::min<u64>(copy.extent - done, Copy::MOST)));
    }
    loads_.push_back(std::move(copy));
}

void Copies::read_at_once(Warp& warp, const BulkCopy& copy) {
    check_fence(warp, copy);
    record_bulk(warp, copy, Access::read);
}

Warp& Copies::issuer(const BulkCopy& copy) const {
    return block_.cluster->blocks[copy.rank]->warps[copy.warp];
}

void Copies::record_bulk(Warp& warp, const BulkCopy& copy, Access access) {
    const Instruction& in = block_.program->code[copy.pc];
    u64 a[LANES];
    u8* at[LANES];
    for (u64 done = 0; done < copy.extent; done += Copy::MOST) {
        if (!copy.written.empty() && !copy.written[done]) continue;
        a[copy.lane] = copy.shared + done;
        const u32 bytes = u32(std::min<u64>(copy.extent - done, Copy::MOST));
        check_shared_at(warp, block_, in, a, Mask(1) << copy.lane, bytes, access, at);
    }
}

// Between what threads wrote, in the generic proxy, and a bulk copy of the same bytes, which is of the async proxy, a
// fence must stand. PTX ISA 8.6, "Proxies". Where a barrier is missing too, that is said. st.async and red.async are of
// the generic proxy, like what threads write.
void Copies::check_fence(const Warp& warp, const BulkCopy& copy) const {
    if (!block_.program->code[copy.pc].entry->is_bulk()) return;
    const u32 reader = warp.index * LANES + u32(copy.lane);
    const u64 grain = std::min<u64>(block_.shared.granule_bytes(), Copy::MOST);
    for (u64 at = copy.shared; at < copy.shared + copy.extent; at += grain) {
        const Epoch writer = block_.shared.last_writer(at);
        if (shared_epoch::rank(writer) || warp.block != &block_) continue;
        const u32 thread = shared_epoch::thread(writer), clock = shared_epoch::clock(writer);
        const u32 pc = shared_epoch::pc(writer);
        if (block_.proxied.covers(thread, clock) || block_.program->code[pc].entry->is_bulk()) continue;
        if (thread != reader && !warp.knows(copy.lane, thread, clock)) continue;
        block_.stop_at(block_.at(
            warp, copy.pc, copy.lane, FindingKind::race,
            "race on " + block_.shared_place(at, 4, false).text + " in shared memory: " + block_.thread(thread) +
                " writes it on " + block_.line_words(pc) + ", the bulk copy on " + block_.line_words(copy.pc) +
                (copy.barrier < 0 ? " reads" : " overwrites") + " it, with no fence.proxy.async between"));
    }
}

void Copies::commit_bulk(const Warp& warp, Mask mask) {
    any_ = true;
    each_lane(mask, [&](int l) { committed_bulk_[warp.index][l] += 1; });
}

void Copies::wait_bulk(Warp& warp, Mask mask, u32 groups_left, bool reads) {
    const auto ready = [&](const BulkCopy& copy) {
        return copy.warp == warp.index && (mask >> copy.lane & 1) &&
               u64(copy.group) + groups_left < committed_bulk_[warp.index][copy.lane];
    };
    for (BulkCopy& copy : stores_) {
        if (!ready(copy)) continue;
        if (!copy.has_read) free_source(copy);
        if (!reads) store_bulk(copy);
    }
    if (!reads) stores_.erase(std::remove_if(stores_.begin(), stores_.end(), ready), stores_.end());
}

// Who overwrites the source must come after this.
void Copies::free_source(BulkCopy& copy) {
    Warp& warp = block_.warps[copy.warp];
    const AtCopy at_copy(warp, copy.pc, 0);
    record_bulk(warp, copy, Access::read);
    copy.has_read = true;
}

void Copies::land_bulk(const BulkCopy& copy) {
    check_sources(issuer(copy), copy.pc, copy.sources, Mask(1) << copy.lane);
    u8* to_bytes = block_.shared.data() + copy.shared;
    if (copy.combine)
        copy.combine(to_bytes, copy.data.data());
    else if (copy.written.empty())
        std::memcpy(to_bytes, copy.data.data(), copy.extent);
    u64 to[LANES];
    if (copy.written.empty()) {
        to[copy.lane] = copy.shared;
        block_.shared.initialise(Mask(1) << copy.lane, to, u32(copy.extent));
    }
    for (u64 i = 0; i < copy.written.size(); i += Copy::MOST) {
        if (!copy.written[i]) continue;
        std::memcpy(to_bytes + i, copy.data.data() + i, Copy::MOST);
        to[copy.lane] = copy.shared + i;
        block_.shared.initialise(Mask(1) << copy.lane, to, Copy::MOST);
    }
    Trail* trail = block_.launch->trail;
    u8* at[LANES];
    for (u64 i = 0; trail && issuer(copy).block == &block_ && i + Copy::MOST <= copy.extent; i += Copy::MOST) {
        if (!copy.written.empty() && !copy.written[i]) continue;
        to[copy.lane] = copy.shared + i;
        at[copy.lane] = to_bytes + i;
        trail->note_landed(issuer(copy), copy.pc, Mask(1) << copy.lane, to, Copy::MOST, at);
    }
}

namespace {

// The widest access of naturally aligned bytes that begins there.
u32 widest(u64 address, u32 bytes) {
    u32 wide = Copy::MOST;
    while (address % wide || wide > bytes) wide /= 2;
    return wide;
}

}  // namespace

void Copies::store_bulk(const BulkCopy& copy) {
    if (copy.repeats) return;
    Warp& warp = block_.warps[copy.warp];
    const AtCopy at_copy(warp, copy.pc, 0);
    const Landing landing(landing_);
    const Instruction& in = block_.program->code[copy.pc];
    const Mask lane = Mask(1) << copy.lane;
    const Access access = copy.combine ? Access::atomic : Access::write;
    u64 to[LANES];
    u8* at[LANES];
    for (const Piece& piece : copy.pieces) {
        u32 width = 0;
        for (u32 done = 0; done < piece.bytes; done += width) {
            to[copy.lane] = piece.global + done;
            width = copy.combine ? copy.item : widest(piece.global + done, piece.bytes - done);
            check_global_at(warp, in, to, lane, width, access, at);
            const u8* from = copy.data.data() + piece.from + done;
            if (copy.combine)
                copy.combine(at[copy.lane], from);
            else
                std::memcpy(at[copy.lane], from, width);
        }
    }
}

std::vector<BulkCopy> Copies::land_on(s64 barrier) {
    for (u32 w = 0; w < block_.warps.size(); ++w) {
        for (Copy& copy : flying_[w]) {
            if (copy.barrier != barrier || !copy.mask) continue;
            land(copy, copy.mask);
            copy.mask = 0;
        }
        while (!flying_[w].empty() && !flying_[w].front().mask) flying_[w].pop_front();
    }
    const auto first =
        std::stable_partition(loads_.begin(), loads_.end(), [&](const BulkCopy& c) { return c.barrier != barrier; });
    std::vector<BulkCopy> landed(std::make_move_iterator(first), std::make_move_iterator(loads_.end()));
    loads_.erase(first, loads_.end());
    for (const BulkCopy& copy : landed) land_bulk(copy);
    return landed;
}

// ---- those who do not wait

const u32* Copies::in_flight(u64 address, u32 bytes, Site* issued) const {
    for (const BulkCopy& copy : loads_) {
        if (!overlap(copy.shared, copy.extent, address, bytes)) continue;
        const Block& of = *issuer(copy).block;
        *issued = of.site(issuer(copy), copy.pc, copy.lane);
        return &copy.pc;
    }
    int lane = 0;
    const Copy* copy = flying(address, bytes, &lane);
    if (!copy) return nullptr;
    *issued = block_.site(block_.warps[copy->warp], copy->pc, lane);
    return &copy->pc;
}

const Copy* Copies::flying(u64 address, u32 bytes, int* lane) const {
    for (size_t w = 0; w < block_.warps.size(); ++w)
        for (const Copy& copy : flying_[w])
            for (int l = 0; l < LANES; ++l) {
                if (!(copy.mask >> l & 1) || !overlap(copy.to[l], copy.bytes, address, bytes)) continue;
                *lane = l;
                return &copy;
            }
    return nullptr;
}

// What a copy in no group still needs: a commit, or cp.async.wait_all where the kernel has that, which needs none.
std::string Copies::words_on_ungrouped(u64 address, u32 bytes) const {
    bool any = false, waits_for_all = false;
    for (size_t w = 0; w < block_.warps.size(); ++w)
        for (const Copy& copy : flying_[w])
            for (int l = 0; l < LANES; ++l) {
                if (!(copy.mask >> l & 1) || !overlap(copy.to[l], copy.bytes, address, bytes)) continue;
                if (copy.barrier >= 0 || copy.group[l] != committed_[w][l]) continue;
                any = true;
                waits_for_all |= waits_[w][l].needs_no_group;
            }
    if (!any) return "";
    bool commits = false;
    std::vector<std::string> waits;
    for (u32 pc = 0; pc < block_.program->code.size(); ++pc) {
        const std::string& form = block_.program->code[pc].entry->form;
        commits |= form == "cp.async.commit_group";
        if (form != "cp.async.wait_all") continue;
        const std::string line = block_.line_words(pc);
        if (std::find(waits.begin(), waits.end(), line) == waits.end()) waits.push_back(line);
    }
    const std::string uncommitted = ": it is in no group, since nothing committed it (cp.async.commit_group)";
    if (waits.empty()) return uncommitted;
    std::string words = commits && !waits_for_all ? uncommitted + ", and" : ":";
    words += " since it issued the copy, its thread has not come to ";
    if (waits.size() > MOST_WAITS) return words + "a cp.async.wait_all";
    words += "cp.async.wait_all on " + waits[0];
    for (size_t i = 1; i < waits.size(); ++i) words += " or on " + waits[i];
    return words;
}

void Copies::check(Warp& warp, Mask mask, const u64* address, u32 bytes, Access access) const {
    if (!any_) return;
    each_lane(mask, [&](int l) {
        Site issued;
        const u32* pc = in_flight(address[l], bytes, &issued);
        if (!pc) return;
        const std::string& form = block_.program->code[*pc].entry->form;
        const bool bulk = form.rfind("cp.async", 0) != 0 || form.find(".bulk") != std::string::npos;
        Finding finding = block_.at(
            warp, warp.here, l, FindingKind::race,
            std::string(
                access == Access::read    ? "reads "
                : access == Access::write ? "writes "
                                          : "updates ") +
                block_.shared_place(address[l], bytes, false).text + ", whose " +
                (form.rfind("cp.async", 0) == 0 ? bulk ? "cp.async.bulk" : "cp.async"
                                                : form.substr(0, form.find('.', 4))) +
                " on " + block_.line_words(*pc) + " has not been waited for" +
                (bulk ? "" : words_on_ungrouped(address[l], bytes)));
        finding.place = block_.shared_place(address[l], bytes, false).text;
        finding.sides = {
            Side{issued, "copies"}, Side{block_.site(warp, warp.here, l), access == Access::read ? "reads" : "writes"}};
        int lane = 0;
        const Copy* copy = bulk || access != Access::read ? nullptr : flying(address[l], bytes, &lane);
        if (bulk && access == Access::read) finding.notes = bulk_notes(address[l], bytes);
        if (bulk) finding.phases = words_on_release(warp, l, address[l], bytes);
        if (copy && copy->barrier < 0) finding.notes = notes(*copy, lane, address[l], bytes);
        block_.stop_at(std::move(finding));
    });
}

// ---- what is known of the stages, for the notes of a finding

std::string Copies::note_on_wait(const Copy& copy, int lane, bool is_stage) const {
    const Wait& wait = waits_[copy.warp][lane];
    const u32 group = copy.group[lane];
    if (!wait.any) return "the thread that issued the copy has not waited for any copy so far";
    std::string words = "the thread that issued the copy last waited on " + block_.line_words(wait.pc);
    if (group >= wait.committed) return words + ", before it committed the copy: that wait is not for it";
    const u32 place = wait.committed - group;
    const u32 left = wait.groups_left;
    words += ", which leaves the " + (left == 1 ? "newest group" : std::to_string(left) + " newest groups") +
             " in flight, and the copy is in " +
             (place == 1 ? "the newest one" : "the one that is number " + std::to_string(place) + " from the newest");
    const bool is_in_a_round = block_.line_words(wait.before) == block_.line_words(wait.pc);
    if (!is_stage && wait.without && place + wait.without > left && is_in_a_round)
        return words +
               ": between the wait before and this one the thread committed no group. If it commits one in "
               "each round, also without copies, this wait is for the copy";
    if (!is_stage && wait.without)
        words += ". Between the wait before, on " + block_.line_words(wait.before) +
                 ", and this one the thread committed no group, so this one is for the copy only if it leaves " +
                 (place == 1 ? "none" : "at most " + std::to_string(place - 1)) + " in flight";
    return is_stage ? words : words + ": cp.async.wait_group " + std::to_string(place - 1) + " there would wait for it";
}

std::vector<std::string> Copies::notes(const Copy& copy, int lane, u64 address, u32 bytes) const {
    if (block_.shared.unread(address))
        return {
            "the copy on " + block_.line_words(shared_epoch::pc(block_.shared.last_writer(address))) +
            " had arrived in the same place, and no thread has read it: the place is copied to again before it is "
            "read"};
    std::vector<std::string> found;
    std::string other = unread_elsewhere(address, bytes, true);
    if (other.empty()) other = unread_elsewhere(address, bytes, false);  // more is not known where stages are not
    if (!other.empty()) found.push_back(other);
    if (copy.group[lane] < committed_[copy.warp][lane]) found.push_back(note_on_wait(copy, lane, !other.empty()));
    return found;
}

// The wait that let a copy begin where a thread touches what it writes.
std::vector<std::string> Copies::words_on_release(const Warp& warp, int lane, u64 address, u32 bytes) const {
    for (const BulkCopy& copy : loads_) {
        if (!overlap(copy.shared, copy.extent, address, bytes)) continue;
        return issuer(copy).block->mbarriers.words_on_early(
            copy.after, "the wait before that copy", warp.block->rank, warp.thread(lane), warp.clock, "read");
    }
    return {};
}

std::vector<std::string> Copies::bulk_notes(u64 address, u32 bytes) const {
    const auto copy = std::find_if(loads_.begin(), loads_.end(), [&](const BulkCopy& each) {
        return overlap(each.shared, each.extent, address, bytes);
    });
    const MBarrier* barrier = copy == loads_.end() ? nullptr : block_.mbarriers.known(u64(copy->barrier));
    if (!barrier || copy->phase < barrier->phase) return {};
    const std::string where = "it completes in phase " + std::to_string(copy->phase) + " of the mbarrier " +
                              block_.shared_place(u64(copy->barrier), 8, false).text;
    if (!barrier->passed.any) return {where + ", and no wait there has ended so far"};
    const MBarrier::Passed& passed = barrier->passed;
    const std::string earlier = passed.ended ? "phase " + std::to_string(passed.ended - 1) + " had ended"
                                             : "a new mbarrier counts as one whose phase before the first has ended";
    return {
        where + "; the last wait there that ended, on " + block_.line_words(passed.pc) + ", had parity " +
        std::to_string(passed.parity) + ", and " + earlier};
}

std::vector<std::string> Copies::notes_on_unwritten(u64 address, u32 bytes) const {
    if (!any_) return {};
    std::string words = unread_elsewhere(address, bytes, true);
    if (words.empty()) words = unread_elsewhere(address, bytes, false);
    return words.empty() ? std::vector<std::string>{} : std::vector<std::string>{words};
}

std::string Copies::unread_elsewhere(u64 address, u32 bytes, bool same_place) const {
    const Extent* own = block_.extent_of(address);
    if (!own) return "";
    const u64 end = own->bytes ? own->offset + own->bytes : block_.shared.bytes();
    const auto is_copy = [&](u64 at) {
        return block_.shared.unread(at) &&
               !block_.program->code[shared_epoch::pc(block_.shared.last_writer(at))].entry->is_bulk();
    };
    u64 stage = 0;  // bytes of one
    if (own->shape.itemsize && own->shape.sizes.size() > 2) {
        stage = own->shape.itemsize;
        for (size_t i = 1; i < own->shape.sizes.size(); ++i) stage *= own->shape.sizes[i];
    }
    if (same_place && !stage) return "";
    u64 at = same_place ? own->offset + (address - own->offset) % stage : own->offset;
    while (at < end && !is_copy(at)) at += same_place ? stage : bytes;
    if (at >= end) return "";
    u64 last = at + bytes;
    for (u64 next = last; !same_place && next < end && next < last + PADDING; ++next)
        if (is_copy(next)) last = next + 1;
    const std::string more = last - at > bytes ? " and " + std::to_string(last - at - bytes) + " bytes after it" : "";
    const std::string words = block_.shared_place(at, bytes, false).text + more + ", copied on " +
                              block_.line_words(shared_epoch::pc(block_.shared.last_writer(at)));
    if (same_place) return words + ", has arrived, and no thread has read it: another stage is read, or was copied to";
    return words + ", has arrived, and no thread has read it";
}

// What must come before a store's source is written or gone.
std::string Copies::wanted(const BulkCopy& copy) const {
    if (copy.group == committed_bulk_[copy.warp][copy.lane])
        return "nothing has committed it to a group (cp.async.bulk.commit_group), so no wait is for it";
    return "wait for its group first (cp.async.bulk.wait_group.read)";
}

void Copies::check_readers(Warp& warp, Mask mask, const u64* address, u32 bytes) const {
    each_lane(mask, [&](int l) {
        for (const BulkCopy& copy : stores_) {
            if (copy.has_read || !overlap(copy.shared, copy.extent, address[l], bytes)) continue;
            block_.stop_at(block_.at(
                warp, warp.here, l, FindingKind::race,
                "writes " + block_.shared_place(address[l], bytes, false).text + ", which the bulk copy on " +
                    block_.line_words(copy.pc) + " may still read: " + wanted(copy)));
        }
    });
}

// Their thread knows that they have read, not that they have written.
void Copies::check_writers(Warp& warp, Mask mask, const u64* address, u32 bytes, Access access) const {
    if (landing_) return;
    for (const BulkCopy& copy : stores_) {
        Mask near = 0;
        each_lane(
            mask, [&](int l) { near |= Mask(address[l] < copy.highest && copy.lowest < address[l] + bytes) << l; });
        for (size_t i = 0; near && i < copy.pieces.size(); ++i) {
            const Piece& piece = copy.pieces[i];
            each_lane(near, [&](int l) {
                if (!overlap(piece.global, piece.bytes, address[l], bytes)) return;
                const Allocation* allocation = warp.launch->memory->find(address[l]);
                if (!allocation) return;
                const u32 item = allocation->itemsize ? allocation->itemsize : 4;
                const Place place = inside(allocation->name, s64(address[l] - allocation->base), item, bytes);
                block_.stop_at(block_.at(
                    warp, warp.here, l, FindingKind::race,
                    (access == Access::read ? "reads " : "writes ") + place.text + ", which the bulk copy on " +
                        block_.line_words(copy.pc) +
                        " may not have written yet: wait for its group first (cp.async.bulk.wait_group, without "
                        ".read)"));
            });
        }
    }
}

void Copies::finish() {
    const auto exits = [&](const BulkCopy& copy, const char* what, const std::string& how) {
        block_.stop_at(block_.at(
            issuer(copy), copy.pc, copy.lane, FindingKind::race,
            std::string("exits while this bulk copy may still ") + what + " " +
                block_.shared_place(copy.shared, Copy::MOST, false).text + " in shared memory: " + how));
    };
    for (const BulkCopy& copy : stores_)
        if (!copy.has_read) exits(copy, "read", wanted(copy));
    if (!loads_.empty()) exits(loads_.front(), "write", "wait at its mbarrier first");
    for (const BulkCopy& copy : stores_) store_bulk(copy);
    stores_.clear();
}

}  // namespace sim
