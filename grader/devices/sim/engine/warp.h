// warp: 32 lanes with a program counter each
//
// The group of lanes at the lowest program counter runs until it meets the next
// group, ends, or waits. A group that spins while others could run is set aside
// after a while, so that every lane makes progress.
#pragma once
#include <vector>

#include "clock.h"
#include "poison.h"
#include "program.h"

namespace sim {

struct Block;
struct Launch;

struct Caller {
    u32 pc, site;  // of the call, and in Program::calls
};

// Of one lane. Local addresses go on behind the kernel's own local memory with `bytes`.
struct Stack {
    std::vector<Caller> callers;    // where it returns to
    std::vector<u8> saved;          // registers and parameters of outer activations of a function that calls itself
    std::vector<u8> bytes, shadow;  // the variables of those functions, and 1 where they are initialised
    u64 taken = 0;                  // bytes of the card's stack, at least
};

// What some lanes of a warp know beyond the others.
struct LaneKnowledge {
    Mask lanes;
    VectorClock known;
};

struct Warp {
    static constexpr u32 NEVER = ~0u;

    u8* rows = nullptr;  // the register file
    Block* block = nullptr;
    const Launch* launch = nullptr;
    const Instruction* code = nullptr;
    Ways* ways = nullptr;        // of the program's branches
    u8* local = nullptr;         // [lane][local_bytes]
    u8* local_shadow = nullptr;  // same, 1 where initialised
    u64 local_bytes = 0;

    bool overlaps = false;  // copies in bulk, wgmma or another launch may be under way beside it
    u32 index = 0;          // in its block
    Mask existing = 0;      // lanes that stand for a thread
    Mask alive = 0;         // not exited
    Mask at_barrier = 0;    // wait for a barrier of the block; their pc stands at it
    Mask at_warp_sync = 0;  // wait for the other lanes of a .sync instruction; their pc stands at it
    Mask set_aside = 0;     // let others run first
    u32 here = 0;           // pc of the running group
    Mask active = 0;        // lanes of the running group
    u64 executed = 0;       // warp instructions
    u64 executed_lanes = 0;
    Mask awaited = 0;                  // lanes that have waited for the launch before: griddepcontrol.wait
    Mask carry = 0;                    // flag of add.cc and its like
    u32 clock = 0;                     // grows at every synchronisation
    VectorClock known;                 // accesses up to these clocks come before the next ones of all its lanes
    u32 known_min = 0;                 // least of `known`
    std::vector<LaneKnowledge> parts;  // of lanes that have parted; no lane is in two
    alignas(64) u32 pc[LANES] = {};
    alignas(64) u32 jumped[LANES] = {};  // the branch that a lane took last; NEVER: it has taken none
    Stack stacks[LANES];
    Poisons poisons;  // values in its registers that no lane may use

    template <class T>
    T* row(s32 offset) const {
        return reinterpret_cast<T*>(rows + offset);
    }
    Mask& predicate(s32 offset) const { return *reinterpret_cast<Mask*>(rows + offset); }
    void set_predicate(s32 offset, Mask lanes, Mask value) const {
        Mask& p = predicate(offset);
        p = (p & ~lanes) | (value & lanes);
    }

    // The local bytes of a lane from an address on, and how many there are; null where it has none.
    u8* local_at(int lane, u64 address, u64* available, u8** initialised) {
        const bool fixed = address < local_bytes;
        Stack& stack = stacks[lane];
        const u64 offset = fixed ? u64(lane) * local_bytes + address : address - local_bytes;
        *available = fixed ? local_bytes - address : stack.bytes.size() - std::min(offset, u64(stack.bytes.size()));
        *initialised = (fixed ? local_shadow : stack.shadow.data()) + offset;
        return *available ? (fixed ? local : stack.bytes.data()) + offset : nullptr;
    }

    u32 thread(int lane) const { return index * LANES + u32(lane); }
    Mask runnable() const { return alive & ~at_barrier & ~at_warp_sync; }
    bool finished() const { return alive == 0; }
    void retire(Mask lanes) {  // they exit; lanes that wait for them look again
        alive &= ~lanes;
        at_warp_sync = 0;
    }

    // Joins to `released` what these lanes know and have done. What they do next comes after, once the clock has
    // ticked.
    void release(Mask lanes, VectorClock& released) const;
    void tick() { clock += 1; }
    VectorClock release(Mask lanes) {
        VectorClock released;
        release(lanes, released);
        tick();
        return released;
    }
    void acquire(Mask lanes, const VectorClock& released);
    void become(Mask lanes, const VectorClock& joined, u32 least);  // which has all that they know
    void meet(Mask lanes);  // each knows what the others know and did: bar.warp.sync
    // Whether what a thread of the block did at that clock comes before the lane's next access.
    bool knows(int lane, u32 other, u32 at) const {
        return known.covers(other, at) || (!parts.empty() && part_knows(lane, other, at));
    }
    // The same of a warp of another block of the cluster, or of a warpgroup.
    bool knows_component(int lane, u32 component, u32 other_lane, u32 at) const;
    bool includes(int lane, const VectorClock& other) const;  // whether the lane knows all of it
    bool has_parted() const { return !parts.empty() || !known.lanes.empty(); }
    // What lanes have read of other blocks' flags; what comes before a fence after that.
    void see(Mask lanes, const VectorClock& flags);
    void acquire_seen(Mask lanes);
    u64 acquired(int lane) const;

    // Runs until no lane can go on or about `budget` instructions are done.
    // Throws Halt.
    void run(u64 budget);

    void move(Mask lanes, u32 to) {
        for (int l = 0; l < LANES; ++l) pc[l] = lanes >> l & 1 ? to : pc[l];
    }
    void note_jump(Mask lanes, u32 at) {
        if (at == NEVER) return;
        for (int l = 0; l < LANES; ++l) jumped[l] = lanes >> l & 1 ? at : jumped[l];
    }

 private:
    void run_group(u32 start, u32 limit, bool alone, u64 budget);
    bool are_all(Mask lanes) const { return ((lanes | ~alive) & existing) == existing; }
    bool part_knows(int lane, u32 other, u32 at) const;
    void join_parts();
};

}  // namespace sim
