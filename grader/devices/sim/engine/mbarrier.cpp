#include "mbarrier.h"

#include <algorithm>

#include "cluster.h"
#include "decode.h"
#include "check_access.h"
#include "operation.h"

namespace sim {

namespace {

constexpr u32 WAKES = 200;     // without a phase that ends, before waiters count as deadlocked
constexpr size_t WAITS = 8;    // of a warp at an mbarrier, that are kept
constexpr size_t PHASES = 16;  // that are told apart; what ended before is the same to all who wait

}  // namespace

void MBarriers::forget() {
    barriers_.clear();
    std::fill(refused_, refused_ + WARPS_PER_BLOCK, 0);
    std::fill(tried_, tried_ + WARPS_PER_BLOCK, 0);
    std::fill(last_, last_ + WARPS_PER_BLOCK, LastWait());
    wakes_ = 0;
}

void MBarriers::initialise(Warp& warp, int lane, u64 address, u32 count) {
    MBarrier& barrier = barriers_[address] = {};
    barrier.initialising = {warp.here, warp.block->rank, warp.index, lane};
    barrier.made_at = warp.clock;
    barrier.expected = barrier.initial = count;
    barrier.pending = count;
    barrier.phases.begin(0, count);
}

// A thread of another block must know of the mbarrier.init, whichever comes first here.
MBarrier& MBarriers::find(const Warp& warp, int lane, u64 address) {
    const auto found = barriers_.find(address);
    const auto stop = [&](const std::string& why) {
        block_.stop_at(block_.at(
            warp, warp.here, lane, FindingKind::uninitialised,
            "uses " + block_.shared_place(address, 8, false).text + " as an mbarrier, but " + why));
    };
    if (found == barriers_.end()) stop("no mbarrier.init made it one");
    const MBarrier::Step& made = found->second.initialising;
    if (warp.block != &block_ &&
        !warp.knows_component(lane, warp_of_rank(block_.rank, made.warp), u32(made.lane), found->second.made_at))
        stop(
            "nothing orders the mbarrier.init in block rank " + std::to_string(block_.rank) +
            " before it: fence.mbarrier_init and a barrier of the cluster");
    return found->second;
}

void MBarriers::advance(MBarrier& barrier) {
    if (barrier.pending != 0 || barrier.bytes != 0) return;
    barrier.phase += 1;
    barrier.pending = barrier.expected;
    barrier.phases.begin(barrier.phase, barrier.expected);
    if (!barrier.ends.empty()) barrier.arrived.join(barrier.ends.back());
    barrier.ends.push_back(std::move(barrier.arrived));
    if (barrier.ends.size() > PHASES) barrier.ends.pop_front();
    barrier.arrived = {};
    wakes_ = 0;
    resume(barrier);
}

void MBarriers::resume(MBarrier& barrier) {
    for (Warp& warp : block_.warps) {
        warp.at_barrier &= ~barrier.waiting[warp.index];
        barrier.waiting[warp.index] = 0;
    }
}

// PTX ISA 9.7.13.15.2, "Contents of the mbarrier object": the range of the count of bytes.
void MBarriers::expect(const Warp& warp, int lane, MBarrier& barrier, s64 bytes) {
    constexpr s64 MOST = (1 << 20) - 1;
    barrier.bytes += bytes;
    note(warp, lane, barrier, 0, bytes, 0);
    barrier.expecting = {warp.here, warp.block->rank, warp.index, lane};
    barrier.expects = true;
    if (barrier.bytes <= MOST) return;
    block_.stop_at(block_.at(
        warp, warp.here, lane, FindingKind::crash,
        "tells an mbarrier of " + std::to_string(barrier.bytes) + " bytes to come; it counts up to " +
            std::to_string(MOST)));
}

// The finding stands where the barrier expects too few.
void MBarriers::too_many_bytes(const MBarrier& barrier, u64 address, s64 bytes, const BulkCopy* copy) {
    MBarrier::Step step = barrier.expects ? barrier.expecting : barrier.initialising;
    if (copy && !barrier.expects) step = {copy->pc, copy->rank, copy->warp, copy->lane};
    const Warp& warp = block_.cluster->blocks[step.rank]->warps[step.warp];
    Finding finding = block_.at(
        warp, step.pc, step.lane, FindingKind::crash,
        "the mbarrier " + block_.shared_place(address, 8, false).text + " gets " + plural(u64(bytes), "byte") +
            " more than it expects (expect_tx): a phase ends before all of its copies have landed");
    if (const Phase* phase = barrier.phases.find(copy ? copy->phase : barrier.phase); phase && !phase->steps.empty())
        finding.phases = {words_on(address, barrier, *phase)};
    block_.stop_at(std::move(finding));
}

// What lanes do at a barrier, for the sentences of a finding.
void MBarriers::note(const Warp& warp, int lane, MBarrier& barrier, u32 arrivals, s64 announced, s64 came) const {
    const Block& block = *warp.block;
    PhaseStep& step = barrier.phases.now().step(warp.here, block.rank, warp.index, Mask(1) << lane);
    step.arrivals += arrivals;
    step.announced += announced;
    step.came += came;
    if (!arrivals) return;
    step.clock = warp.clock;
    step.multiplied = block.warpgroups ? block.warpgroups->last_group(warp) : 0;
}

void MBarriers::note_copy(const BulkCopy& copy, MBarrier& barrier) const {
    barrier.phases.now().step(copy.pc, copy.rank, copy.warp, Mask(1) << copy.lane).came += s64(copy.bytes);
}

void MBarriers::finish() {
    for (auto& [address, barrier] : barriers_)
        if (barrier.bytes < 0) too_many_bytes(barrier, address, -barrier.bytes, nullptr);
}

void MBarriers::complete_bytes(MBarrier& barrier, s64 bytes) {
    barrier.bytes -= bytes;
    advance(barrier);
}

void MBarriers::complete_bytes(const Warp& warp, int lane, MBarrier& barrier, s64 bytes) {
    note(warp, lane, barrier, 0, 0, bytes);
    complete_bytes(barrier, bytes);
}

// What a lane, of another block perhaps, knows, as this block counts.
void MBarriers::release_here(Warp& warp, int lane, VectorClock& released) const {
    if (warp.block == &block_) return warp.release(Mask(1) << lane, released);
    VectorClock known;
    warp.release(Mask(1) << lane, known);
    released.join(known.moved(warp.block->rank, block_.rank));
}

void MBarriers::arrive(Warp& warp, int lane, MBarrier& barrier, u32 count, bool drops) {
    if (barrier.pending < s64(count)) {
        Finding finding = block_.at(
            warp, warp.here, lane, FindingKind::crash,
            "arrives at an mbarrier that expects " + plural(barrier.expected, "arrival") + " a phase and has " +
                (barrier.pending ? "only " + std::to_string(barrier.pending) + " left" : "had them all"));
        for (auto& [address, each] : barriers_)
            if (&each == &barrier && barrier.phases.now().arrivals())
                finding.phases = {words_on(address, barrier, barrier.phases.now())};
        if (std::string wait = warp.block->mbarriers.words_on_last_wait(warp); !wait.empty())
            finding.phases.push_back(std::move(wait));
        block_.stop_at(std::move(finding));
    }
    note(warp, lane, barrier, count, 0, 0);
    release_here(warp, lane, barrier.arrived);
    barrier.pending -= count;
    if (drops) barrier.expected -= std::min(barrier.expected, count);
    advance(barrier);
}

void MBarriers::arrive_after_copies(Warp& warp, Mask lanes, u64 address, bool increments) {
    MBarrier& barrier = find(warp, __builtin_ctz(lanes), address);
    const u32 count = u32(__builtin_popcount(lanes));
    if (increments) barrier.pending += count;
    block_.copies.hand_over(warp, lanes, s64(address), warp.clock);
    barrier.after_copies.push_back({warp.here, warp.index, lanes, warp.release(lanes)});
    resume(barrier);
}

void MBarriers::attach(Warp& warp, int lane, u64 address, BulkCopy copy) {
    MBarrier& barrier = find(warp, lane, address);
    copy.barrier = s64(address);
    copy.phase = barrier.phase;
    copy.rank = warp.block->rank;
    copy.after = warp.block->mbarriers.last_wait(warp);
    release_here(warp, lane, copy.known);
    block_.copies.issue_bulk(warp, std::move(copy));
    warp.tick();
    resume(barrier);
}

bool MBarriers::has_ended(u64 address, MBarrier& barrier, u64 phase) {
    if (barrier.phase <= phase) {
        for (const BulkCopy& copy : block_.copies.land_on(s64(address))) {
            if (copy.phase < barrier.phase) too_many_bytes(barrier, address, s64(copy.bytes), &copy);
            barrier.arrived.join(copy.known);
            note_copy(copy, barrier);
            complete_bytes(barrier, s64(copy.bytes));
        }
        const auto arrivals = std::move(barrier.after_copies);
        barrier.after_copies.clear();
        for (const auto& arrival : arrivals) {
            const u32 count = u32(__builtin_popcount(arrival.lanes));
            barrier.arrived.join(arrival.known);
            barrier.phases.now().step(arrival.pc, block_.rank, arrival.warp, arrival.lanes).arrivals += count;
            barrier.pending -= count;
            advance(barrier);
        }
    }
    return barrier.phase > phase;
}

void MBarriers::acquire_end(Warp& warp, Mask lanes, const MBarrier& barrier, u64 phase) {
    const u64 oldest = barrier.phase - barrier.ends.size();
    if (!barrier.ends.empty() && phase < barrier.phase)
        warp.acquire(lanes, barrier.ends[size_t(std::max(phase, oldest) - oldest)]);
}

s64 MBarriers::acquire_parity(Warp& warp, Mask lanes, const MBarrier& barrier, u32 parity) {
    const u64 oldest = barrier.phase - barrier.ends.size();
    const auto first_unknown = [&](int lane) {
        u64 phase = barrier.phase;
        while (phase > oldest && !warp.includes(lane, barrier.ends[size_t(phase - 1 - oldest)])) --phase;
        return phase;
    };
    s64 ended = -1;
    // A wait for a parity is over in the phase after the one that ended with it.
    const auto acquire = [&](Mask group, u64 phase) {
        if (phase == barrier.phase && phase % 2 != parity) ended = s64(phase) - 1;
        if (phase % 2 != parity || phase >= barrier.phase) return;
        acquire_end(warp, group, barrier, phase);
        ended = s64(phase);
    };
    if (!warp.has_parted()) {
        acquire(lanes, first_unknown(__builtin_ctz(lanes)));
        return ended;
    }
    while (lanes) {
        const u64 phase = first_unknown(__builtin_ctz(lanes));
        Mask group = 0;
        each_lane(lanes, [&](int l) { group |= Mask(first_unknown(l) == phase) << l; });
        acquire(group, phase);
        lanes &= ~group;
    }
    return ended;
}

// ---- those who wait

void MBarriers::passes(const Warp& warp, u64 address, MBarrier& barrier, s64 phase) {
    const u32 multiplied = block_.warpgroups ? block_.warpgroups->last_group(warp) : 0;
    last_[warp.index] = {true, barrier.phase == 0, warp.here, address, phase, warp.clock, multiplied};
    if (!block_.warpgroups) return;
    std::deque<LastWait>& waits = barrier.waits[warp.index];
    waits.push_back(last_[warp.index]);
    if (waits.size() > WAITS) waits.pop_front();
}

MBarriers::Twice MBarriers::waited_twice(const Warp& warp, u64 address, u32 group) const {
    const MBarrier* barrier = known(address);
    const auto found =
        barrier ? barrier->waits.find(warp.index) : std::map<u32, std::deque<LastWait>>::const_iterator();
    if (!barrier || found == barrier->waits.end()) return {};
    Twice twice;
    for (const LastWait& wait : found->second) {
        if (wait.multiplied >= group) break;
        twice.first = twice.again && wait.phase >= 0 && twice.again->phase == wait.phase ? twice.again : nullptr;
        twice.again = &wait;
    }
    return twice.first ? twice : Twice();
}

void MBarriers::suspend(Warp& warp, int lane, MBarrier& barrier) {
    barrier.waiting[warp.index] |= Mask(1) << lane;
    warp.at_barrier |= Mask(1) << lane;
}

bool MBarriers::any_waiting() const {
    for (auto& [address, barrier] : barriers_)
        for (const Mask lanes : barrier.waiting)
            if (lanes) return true;
    return false;
}

bool MBarriers::wake() {
    if (!any_waiting() || ++wakes_ > WAKES) return false;
    for (auto& [address, barrier] : barriers_) {
        for (const Warp& warp : block_.warps) refused_[warp.index] |= barrier.waiting[warp.index];
        resume(barrier);
    }
    return true;
}

// ---- instructions

namespace {

constexpr u64 STATE_PHASE = 32;  // bit: the state of an arrival is its phase and what was pending before it

// The mbarrier of each lane, after the checks of an access to it: which block has it, and where.
struct Objects {
    Block* owner[LANES];
    u64 address[LANES];
};

Objects objects(Warp& warp, const Instruction& in, Mask mask, Access access, bool may_be_remote = false) {
    Objects found;
    u8* at[LANES];
    check_each_lane(warp, in, mask, 8, access, at);
    Block& block = *warp.block;
    each_lane(mask, [&](int l) {
        found.owner[l] = nullptr;
        for (auto& candidate : block.cluster->blocks) {
            const u64 address = u64(at[l] - candidate->shared.data());
            if (address >= candidate->shared.bytes()) continue;
            found.owner[l] = candidate.get();
            found.address[l] = address;
        }
        if (!found.owner[l])
            block.stop_at(
                block.at(warp, warp.here, l, FindingKind::crash, "uses an mbarrier that is not in shared memory"));
        if (found.owner[l] == &block || may_be_remote) return;
        block.stop_at(block.at(
            warp, warp.here, l, FindingKind::crash,
            "uses " + in.entry->form + " on an mbarrier of another block; those can only be arrived at"));
    });
    return found;
}

void initialise(Warp& warp, const Instruction& in, Mask mask) {
    const Objects found = objects(warp, in, mask, Access::write);
    each_lane(mask, [&](int l) {
        std::memset(warp.block->shared.data() + found.address[l], 0, 8);
        warp.block->mbarriers.initialise(warp, l, found.address[l], warp.row<const u32>(in.operand[1])[l]);
    });
}

void invalidate(Warp& warp, const Instruction& in, Mask mask) {
    const Objects found = objects(warp, in, mask, Access::write);
    each_lane(mask, [&](int l) { warp.block->mbarriers.invalidate(found.address[l]); });
}

enum class Arrival { plain, expect, drop };

// operands: state, count or bytes
template <Arrival kind>
void arrive(Warp& warp, const Instruction& in, Mask mask) {
    const Objects found = objects(warp, in, mask, Access::atomic, true);
    each_lane(mask, [&](int l) {
        MBarriers& barriers = found.owner[l]->mbarriers;
        MBarrier& barrier = barriers.find(warp, l, found.address[l]);
        const u32 number = warp.row<const u32>(in.operand[1])[l];
        warp.row<u64>(in.operand[0])[l] = barrier.phase << STATE_PHASE | u32(barrier.pending);
        if (kind == Arrival::expect) barriers.expect(warp, l, barrier, number);
        barriers.arrive(warp, l, barrier, kind == Arrival::expect ? 1 : number, kind == Arrival::drop);
    });
    warp.tick();
}

template <bool completes>
void transaction(Warp& warp, const Instruction& in, Mask mask) {
    const Objects found = objects(warp, in, mask, Access::atomic, true);
    each_lane(mask, [&](int l) {
        MBarriers& barriers = found.owner[l]->mbarriers;
        MBarrier& barrier = barriers.find(warp, l, found.address[l]);
        const u32 bytes = warp.row<const u32>(in.operand[1])[l];
        if (completes)
            barriers.complete_bytes(warp, l, barrier, bytes);
        else
            barriers.expect(warp, l, barrier, bytes);
    });
}

// Calls `visit` with each mbarrier that lanes of the mask name, and with those lanes.
template <class F>
void each_object(const u64* address, Mask mask, F visit) {
    while (mask) {
        const u64 here = address[__builtin_ctz(mask)];
        Mask same = 0;
        each_lane(mask, [&](int l) { same |= Mask(address[l] == here) << l; });
        visit(here, same);
        mask &= ~same;
    }
}

template <bool increments>
void arrive_after_copies(Warp& warp, const Instruction& in, Mask mask) {
    const Objects found = objects(warp, in, mask, Access::atomic);
    each_object(found.address, mask, [&](u64 here, Mask lanes) {
        warp.block->mbarriers.arrive_after_copies(warp, lanes, here, increments);
    });
}

// PTX ISA 9.7.13.15, "mbarrier.test_wait, mbarrier.try_wait": a phase has parity 0 or 1, and no other is valid.
void check_parity(const Warp& warp, int lane, u64 address, u32 parity) {
    if (parity <= 1) return;
    Block& block = *warp.block;
    block.stop_at(block.at(
        warp, warp.here, lane, FindingKind::crash,
        "waits for parity " + std::to_string(parity) + " of the mbarrier " +
            block.shared_place(address, 8, false).text + "; the phases of an mbarrier have parity 0 or 1"));
}

// Lanes whose phase has not ended stay at the instruction until something happens. operands: result, state or parity
template <bool parity>
void wait(Warp& warp, const Instruction& in, Mask mask) {
    const Objects found = objects(warp, in, mask, Access::read);
    const u64* address = found.address;
    warp.move(mask, warp.here + 1);
    MBarriers& barriers = warp.block->mbarriers;
    Mask ended = 0;
    each_lane(mask, [&](int l) {
        MBarrier& barrier = barriers.find(warp, l, address[l]);
        u64 phase = barrier.phase - 1;
        if (parity) {
            const u32 asked = warp.row<const u32>(in.operand[1])[l];
            check_parity(warp, l, address[l], asked);
            if ((barrier.phase & 1) == asked) phase = barrier.phase;
        } else {
            phase = warp.row<const u64>(in.operand[1])[l] >> STATE_PHASE;
        }
        const bool is_over = phase + 1 == 0 || barriers.has_ended(address[l], barrier, phase);
        ended |= Mask(is_over) << l;
        if (!is_over && !barriers.is_refused(warp, l)) {
            barriers.suspend(warp, l, barrier);
            warp.pc[l] = warp.here;
        }
        barriers.answer(warp, l);
    });
    if (Counters* counters = warp.block->counters.get())
        if (const Mask first = barriers.first_tries(warp, mask, ended)) counters->wait(warp, (first & ~ended) != 0);
    each_object(address, ended, [&](u64 here, Mask lanes) {
        MBarrier& barrier = barriers.find(warp, __builtin_ctz(lanes), here);
        if (parity) {
            const u32 asked = warp.row<const u32>(in.operand[1])[__builtin_ctz(lanes)];
            barrier.passed = {true, warp.here, asked, barrier.phase};
            return barriers.passes(warp, here, barrier, barriers.acquire_parity(warp, lanes, barrier, asked));
        }
        const u64 phase = warp.row<const u64>(in.operand[1])[__builtin_ctz(lanes)] >> STATE_PHASE;
        barriers.acquire_end(warp, lanes, barrier, phase);
        barriers.passes(warp, here, barrier, s64(phase));
    });
    warp.set_predicate(in.operand[0], mask, ended);
}

void pending_count(Warp& warp, const Instruction& in, Mask mask) {
    each_lane(mask, [&](int l) { warp.row<u32>(in.operand[0])[l] = u32(warp.row<const u64>(in.operand[1])[l]); });
}

// [mbarrier] {, number}
void lower_object(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 1);
    Instruction out = d.prototype(in, entry);
    d.address(out, in.operands[0], in, 8);
    out.operand[1] = in.operands.size() > 1 ? d.source(in.operands[1], shape_of<u32>()) : d.constant(1, 4);
    out.strong = entry.option;  // initialising is a plain write
    d.emit(out);
}

// state, [mbarrier] {, number}
void lower_arrive(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 2);
    Instruction out = d.prototype(in, entry);
    d.address(out, in.operands[1], in, 8);
    out.operand[1] = in.operands.size() > 2 ? d.source(in.operands[2], shape_of<u32>()) : d.constant(1, 4);
    out.operand[0] = d.destination(in.operands[0], shape_of<u64>());
    out.strong = true;
    d.emit(out);
}

// predicate, [mbarrier], state or parity {, time}
void lower_phase_wait(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.require(in, 3);
    Instruction out = d.prototype(in, entry);
    d.address(out, in.operands[1], in, 8);
    out.operand[1] = d.source(in.operands[2], entry.option ? shape_of<u32>() : shape_of<u64>());
    out.operand[0] = d.destination(in.operands[0], PREDICATE);
    out.strong = true;
    d.emit(out);
}

}  // namespace

void mbarrier_entries(Table& t) {
    const std::string space = "{,.shared,.shared::cta,.shared::cluster}.b64";
    const std::string order = "{,.release.cta,.release.cluster,.relaxed.cta,.relaxed.cluster}";
    const std::string acquires = "{,.acquire.cta,.acquire.cluster,.relaxed.cta,.relaxed.cluster}";
    const std::string relaxed = "{,.relaxed.cta,.relaxed.cluster}";
    t.add("mbarrier.init" + space, {initialise, {}}, lower_object);
    t.add("mbarrier.inval" + space, {invalidate, {}}, lower_object, Flow::next, 1);
    t.add("mbarrier.expect_tx" + relaxed + space, {transaction<false>, {}}, lower_object, Flow::next, 1);
    t.add("mbarrier.complete_tx" + relaxed + space, {transaction<true>, {}}, lower_object, Flow::next, 1);
    t.add("mbarrier.arrive{,.noComplete}" + order + space, {arrive<Arrival::plain>, {}}, lower_arrive);
    t.add("mbarrier.arrive.expect_tx" + order + space, {arrive<Arrival::expect>, {}}, lower_arrive);
    t.add("mbarrier.arrive_drop{,.noComplete}" + order + space, {arrive<Arrival::drop>, {}}, lower_arrive);
    t.add("mbarrier.{test,try}_wait" + acquires + space, {wait<false>, {}}, lower_phase_wait, Flow::leave, 0);
    t.add("mbarrier.{test,try}_wait.parity" + acquires + space, {wait<true>, {}}, lower_phase_wait, Flow::leave, 1);
    t.add("mbarrier.pending_count.b64", {pending_count, {2, {shape_of<u32>(), shape_of<u64>()}}});
    t.add("cp.async.mbarrier.arrive" + space, {arrive_after_copies<true>, {}}, lower_object, Flow::next, 1);
    t.add("cp.async.mbarrier.arrive.noinc" + space, {arrive_after_copies<false>, {}}, lower_object, Flow::next, 1);
}

}  // namespace sim
