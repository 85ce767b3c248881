// handover: what fences and flags order between the blocks of a launch
//
// A block that fences for the device and then touches a place atomically or
// volatilely hands over what the warp that fenced had done before, and what
// barriers had told it of the others; one that reads the place so after that,
// and then fences itself, receives it (PTX ISA 8.5, "Memory Consistency Model":
// release and acquire patterns). Which of a block's threads touches and fences
// is not asked. Time is the number of hand-overs so far, and what
// a block receives is one point of it: of what was handed over before, all
// counts as received, from whomever. So data passed on properly is never called
// a race, at the price of missing one now and then.
#pragma once
#include <mutex>
#include <unordered_map>
#include <vector>

#include "program.h"

namespace sim {

// What one block has to hand over, and what it has received.
struct Handed {
    u32 block = 0;
    u32 fenced[LANES] = {};       // of each warp: accesses up to this clock come before a fence
    u32 given[LANES] = {};        // and up to this one have been handed over
    u64 seen = 0;                 // what was handed over until then has been read, but no fence has come since
    u64 received = 0;             // all that was handed over until then
    std::vector<const u8*> read;  // places whose values arrive with the running instruction
    bool acquires = false;        // which is a fence at once
};

class Handover {
 public:
    void fence(Handed& mine, const u32* clocks);
    void touch(Handed& mine, Mask mask, u8* const* at, Access access, bool acquires);
    // Whether what a warp of a block did at that clock comes before what `mine` does now.
    bool ordered(u32 block, u32 warp, u32 clock, Handed& mine);

 private:
    void settle(Handed& mine);

    struct Given {
        u32 clock[LANES];  // of each warp
        u64 time;
    };
    std::mutex mutex_;
    u64 time_ = 0;
    std::unordered_map<const u8*, u64> places_;            // when each was last used to hand over
    std::unordered_map<u32, std::vector<Given>> history_;  // of each block, in order
};

}  // namespace sim
