// release_acquire: what fences and flags order between the blocks of a launch
//
// A block that fences for the device and then touches a place atomically or
// volatilely releases what the warp that fenced had done before, and what
// barriers had told it of the others; one that reads the place so after that,
// and then fences itself, acquires it (PTX ISA 8.5, "Memory Consistency Model":
// release and acquire patterns). Which of a block's threads touches and fences
// is not asked. Time is the number of releases so far, and what a block acquires
// is one point of it: of what was released before, all counts as acquired, from
// whomever. So data passed on properly is never called a race, at the price of
// missing one now and then.
#pragma once
#include <mutex>
#include <unordered_map>
#include <vector>

#include "clock.h"
#include "program.h"

namespace sim {

// What one block has to release, and what it has acquired.
struct BlockReleases {
    u32 block = 0;
    VectorClock fenced;           // accesses up to these clocks come before a fence
    VectorClock released;         // and up to these have been released
    u64 observed = 0;             // what was released until then has been read, but no fence has come since
    u64 acquired = 0;             // all that was released until then
    std::vector<const u8*> read;  // places whose values arrive with the running instruction
    bool acquires = false;        // which is a fence at once
};

class ReleaseAcquire {
 public:
    void fence(BlockReleases& mine, const VectorClock& known);
    void record_strong_access(BlockReleases& mine, Mask mask, u8* const* at, Access access, bool acquires);
    // Whether what a warp of a block did at that clock comes before what `mine` does now.
    bool ordered(u32 block, u32 warp, u32 clock, BlockReleases& mine);

 private:
    void settle(BlockReleases& mine);

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
