// release_acquire: what fences and flags order between the blocks of a launch
//
// A block that fences for the device and then touches a place atomically or
// volatilely releases what the lanes that fenced had done before, and what
// barriers had told them of the others; lanes that read the place so after that,
// and then fence themselves, acquire it (PTX ISA 8.5, "Memory Consistency Model":
// release and acquire patterns), and pass it on by barriers (VectorClock). Which
// of a block's threads touches the place after a fence is not asked. Time is the
// number of releases so far, and what a lane acquires is one point of it: of what
// was released before, all counts as acquired, from whomever. So data passed on
// properly is never called a race, at the price of missing one now and then.
#pragma once
#include <mutex>
#include <unordered_map>
#include <vector>

#include "clock.h"
#include "program.h"

namespace sim {

struct Warp;

// What one block has to release, and what it is about to see.
struct BlockReleases {
    u32 block = 0;
    VectorClock fenced;    // accesses up to these clocks come before a fence
    VectorClock released;  // and up to these have been released
    // Places whose values arrive with the running instruction, of these lanes of a warp.
    std::vector<const u8*> read;
    Warp* reader = nullptr;
    Mask lanes = 0;
    bool acquires = false;  // the instruction is a fence at once
};

class ReleaseAcquire {
 public:
    void fence(BlockReleases& mine, Warp& warp, Mask lanes, const VectorClock& known);
    void record_strong_access(BlockReleases& mine, Warp& warp, Mask mask, u8* const* at, Access access, bool acquires);
    // The running instruction is done: its warp has seen what it read.
    void settle(BlockReleases& mine);
    // Whether what a thread of another block did at that clock comes before what the lane does now.
    bool ordered(u32 block, u32 thread, u32 clock, const Warp& warp, int lane, BlockReleases& mine);

 private:
    void settle_locked(BlockReleases& mine);

    struct Release {
        VectorClock known;
        u64 time;
    };
    std::mutex mutex_;
    u64 time_ = 0;
    std::unordered_map<const u8*, u64> places_;              // when each was last used to release
    std::unordered_map<u32, std::vector<Release>> history_;  // of each block, in order
};

}  // namespace sim
