#include "warp.h"

#include <algorithm>
#include <cstdio>

#include "block.h"
#include "operation.h"

namespace sim {

namespace {

constexpr u32 NONE = ~0u;
constexpr u64 SPIN = 1 << 12;  // instructions of one group while others of the warp could run

// PTX ISA 9.7.9.6: what a lane gets that its own member mask does not name is undefined.
void check_members(Warp& warp, const Instruction& in, Mask mask) {
    const u32* members = warp.row<const u32>(in.operand[in.target]);
    Mask named = 0;
    for (int l = 0; l < LANES; ++l) named |= members[l] & Mask(1) << l;
    const Mask unnamed = mask & ~named;
    if (!unnamed) return;
    const int lane = __builtin_ctz(unnamed);
    char text[16];
    std::snprintf(text, sizeof text, "0x%08x", members[lane]);
    Block& block = *warp.block;
    block.stop_at(block.at(
        warp, warp.here, lane, FindingKind::deadlock,
        block.thread(warp.thread(lane)) + " comes to " + in.entry->form + " with the mask " + text +
            ", which does not name its lane " + std::to_string(lane) +
            ": it may wait for ever, and what it gets is undefined"));
}

// A lane that has exited hands nothing to a shuffle, and what is .aligned all lanes of the warp must execute.
void require_present(Warp& warp, const Instruction& in, Mask mask, Mask gone) {
    const std::string_view form = in.entry->form;
    const bool shuffle = form.substr(0, 4) == "shfl";
    if (!gone || (!shuffle && form.find(".aligned") == form.npos)) return;
    const int lane = __builtin_ctz(mask), other = __builtin_ctz(gone);
    Block& block = *warp.block;
    block.stop_at(block.at(
        warp, warp.here, lane, FindingKind::deadlock,
        block.thread(warp.thread(lane)) +
            (shuffle ? " names in the mask of " + in.entry->form + " a lane that is gone: "
                     : " comes to " + in.entry->form + ", which all lanes of the warp must execute, but ") +
            block.thread(warp.thread(other)) + " has exited " + block.exit_words(warp, other)));
}

// All lanes of the member masks that stand at this instruction, or none when
// some are still to come. Lanes that have exited are not waited for (PTX ISA
// 9.7.13, "all non-exited threads").
Mask gather(Warp& warp, const Instruction& in, Mask mask) {
    const u32* members = warp.row<const u32>(in.operand[in.target]);
    Mask arrived = mask, named = 0;
    for (int l = 0; l < LANES; ++l) arrived |= Mask((warp.at_warp_sync >> l & 1) && warp.pc[l] == warp.here) << l;
    each_lane(arrived, [&](int l) { named |= members[l]; });
    named &= warp.existing;
    require_present(warp, in, mask, named & ~warp.alive);
    named &= warp.alive;
    if (named & ~arrived) {
        warp.at_warp_sync |= mask;
        warp.move(mask, warp.here);
        return 0;
    }
    warp.at_warp_sync &= ~arrived;
    return arrived;
}

// The lanes of the group that execute the instruction.
inline Mask guarded(Warp& warp, const Instruction& in, Mask group) {
    Mask mask = group;
    if (in.guard >= 0) {
        const Mask p = warp.predicate(in.guard);
        mask &= in.guard_negated ? ~p : p;
    }
    if (!warp.poisons.empty()) {
        warp.poisons.check_guard(warp, in, group);
        if (in.flow != Flow::warp_sync && mask) warp.poisons.follow(warp, in, mask);
    }
    return mask;
}

// The lanes that fall behind at an access by several. They are set aside until the others wait.
//
// Strong accesses of several lanes are no data race, but they order nothing either (PTX ISA 8.3): without __syncwarp,
// what lanes read of each other is left to chance.
Mask behind(Warp& warp, Mask mask) {
    if (!(mask & (mask - 1)) || warp.block->random() % 4) return 0;
    return mask & Mask(warp.block->random());
}

}  // namespace

// ---- what its lanes know

void Warp::release(Mask lanes, VectorClock& released) const {
    block->settle();
    released.join(known);
    for (const LaneKnowledge& part : parts)
        if (part.lanes & lanes) released.join(part.known);
    if ((lanes & existing) == existing)
        released.reach(index, clock);
    else
        released.add(index, lanes, clock, existing);
}

void Warp::acquire(Mask lanes, const VectorClock& released) {
    if (are_all(lanes)) {
        known.join(released);
    } else {
        Mask left = lanes & alive;
        for (size_t i = 0, count = parts.size(); i < count; ++i) {
            const Mask inside = parts[i].lanes & left, outside = parts[i].lanes & ~left;
            if (!inside) continue;
            if (outside) parts.push_back({outside, VectorClock(parts[i].known)});
            parts[i].lanes = inside;
            parts[i].known.join(released);
            left &= ~inside;
        }
        if (left) parts.push_back({left, released});
    }
    if (!parts.empty()) join_parts();
    known_min = known.min(block->warps.size());
}

// What all lanes know is the warp's, and a part that knows no more than the warp is none.
void Warp::join_parts() {
    Mask parted = 0;
    for (const LaneKnowledge& part : parts) parted |= part.lanes & alive;
    if (are_all(parted)) {
        VectorClock common;
        common.fill(~0u);
        common.seen = common.acquired = ~u64(0);
        for (const LaneKnowledge& part : parts) {
            for (int i = 0; i < WARPS_PER_BLOCK; ++i) common[i] = std::min(common[i], part.known[i]);
            common.seen = std::min(common.seen, part.known.seen);
            common.acquired = std::min(common.acquired, part.known.acquired);
            if (&part == &parts.front()) common.more = part.known.more;
            for (u32 i = 0; i < common.more.size(); ++i)
                common.more[i] = std::min(common.more[i], part.known.at(WARPS_PER_BLOCK + i));
        }
        known.join(common);
    }
    const auto is_none = [&](const LaneKnowledge& p) { return !(p.lanes & alive) || known.includes(p.known); };
    parts.erase(std::remove_if(parts.begin(), parts.end(), is_none), parts.end());
}

void Warp::become(Mask lanes, const VectorClock& joined, u32 least) {
    if (!are_all(lanes)) return acquire(lanes, joined);
    known = joined;
    parts.clear();
    known_min = least;
}

// Lanes that have exited count as having come where all others do.
void Warp::meet(Mask lanes) {
    block->settle();  // one lane may just have read a flag: the others are to know what it stands for
    if (are_all(lanes) && !has_parted()) {
        known[index] = clock;
        known_min = known.min(block->warps.size());
    } else {
        VectorClock together;
        release(are_all(lanes) ? existing : lanes, together);
        become(lanes, together, together.min(block->warps.size()));
    }
    tick();
}

bool Warp::knows_component(int lane, u32 component, u32 other_lane, u32 at) const {
    if (known.covers(component, other_lane, at)) return true;
    for (const LaneKnowledge& part : parts)
        if (part.lanes >> lane & 1) return part.known.covers(component, other_lane, at);
    return false;
}

bool Warp::part_knows(int lane, u32 other, u32 at) const {
    for (const LaneKnowledge& part : parts)
        if (part.lanes >> lane & 1) return part.known.covers(other, at);
    return false;
}

bool Warp::includes(int lane, const VectorClock& other) const {
    if (known.includes(other)) return true;
    for (const LaneKnowledge& part : parts)
        if (part.lanes >> lane & 1) {
            VectorClock both = known;
            both.join(part.known);
            return both.includes(other);
        }
    return false;
}

void Warp::see(Mask lanes, const VectorClock& flags) {
    bool all_have = flags.seen <= known.seen;
    if (!all_have && !parts.empty()) {
        Mask have = 0;
        for (const LaneKnowledge& part : parts) have |= flags.seen <= part.known.seen ? part.lanes : 0;
        all_have = !(lanes & ~have);
    }
    if (!all_have) acquire(lanes, flags);
}

void Warp::acquire_seen(Mask lanes) {
    VectorClock fenced;
    fenced.acquired = known.seen;
    for (const LaneKnowledge& part : parts)
        if (part.lanes & lanes) fenced.acquired = std::max(fenced.acquired, part.known.seen);
    if (fenced.acquired > known.acquired) acquire(lanes, fenced);
}

u64 Warp::acquired(int lane) const {
    u64 most = known.acquired;
    for (const LaneKnowledge& part : parts)
        if (part.lanes >> lane & 1) most = std::max(most, part.known.acquired);
    return most;
}

void Warp::run(u64 budget) {
    const u64 end = executed + budget;
    while (executed < end && !block->yields) {
        Mask candidates = runnable() & ~set_aside;
        if (!candidates) {
            set_aside = 0;
            candidates = runnable();
            if (!candidates) return;
        }
        u32 lowest = NONE, next = NONE;
        for (int l = 0; l < LANES; ++l) {
            const u32 p = candidates >> l & 1 ? pc[l] : NONE;
            lowest = p < lowest ? p : lowest;
        }
        Mask group = 0;
        for (int l = 0; l < LANES; ++l) {
            const bool wanted = candidates >> l & 1;
            group |= Mask(wanted && pc[l] == lowest) << l;
            next = wanted && pc[l] != lowest && pc[l] < next ? pc[l] : next;
        }
        active = group;
        const bool alone = group == runnable();
        run_group(lowest, next, alone, alone ? end - executed : std::min(SPIN, end - executed));
    }
}

// Runs the lanes of `active` from `start` until they reach `limit`, part, wait,
// or have used their budget.
void Warp::run_group(u32 start, u32 limit, bool alone, u64 budget) {
    const Mask group = active;
    u32 at = start, jump = NEVER;
    u64 done = 0;
    for (;;) {
        const Instruction& in = code[at];
        here = at;
        ++done;
        const Mask mask = guarded(*this, in, group);
        if (in.flow == Flow::next) {
            const Mask late = in.parts ? behind(*this, mask) : 0;
            if (mask & ~late) in.run(*this, in, mask & ~late);
            if (late) {
                move(late, at);
                move(group & ~late, at + 1);
                set_aside |= late;
                break;
            }
            ++at;
        } else if (in.flow == Flow::branch) {
            if (mask) ways->note(at, true);
            if (mask != group) ways->note(at, false);
            if (mask && mask != group) {
                note_jump(group, jump);
                jump = NEVER;
                note_jump(mask, at);
                move(group, at + 1);
                move(mask, in.target);
                break;
            }
            if (mask) jump = at;
            at = mask ? in.target : at + 1;
        } else if (in.flow == Flow::warp_sync && mask) {
            check_members(*this, in, mask);
            const Mask arrived = mask == existing ? mask : gather(*this, in, mask);
            if (arrived && !poisons.empty()) poisons.follow(*this, in, arrived);
            if (arrived) in.run(*this, in, arrived);
            if (arrived != group) {
                move(group & ~mask, at + 1);
                move(arrived, at + 1);
                break;
            }
            ++at;
        } else if (mask) {  // Flow::leave
            move(group & ~mask, at + 1);
            in.run(*this, in, mask);
            break;
        } else {
            ++at;
        }
        if (at >= limit || done >= budget) {
            move(group, at);
            if (done >= budget && !alone) set_aside = group;
            break;
        }
    }
    note_jump(group, jump);
    executed += done;
    executed_lanes += done * u64(__builtin_popcount(group));
}

}  // namespace sim
