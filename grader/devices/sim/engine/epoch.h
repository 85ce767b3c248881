// epoch: one access of a granule in 64 bits: which thread, at which clock of its warp, at which instruction
//
// Shared and global memory remember the last accesses of each granule so. An access races with an earlier epoch that
// its warp's vector clock does not cover (FastTrack: Flanagan, Freund 2009). 0: nobody.
#pragma once
#include "scalar.h"

namespace sim {

using Epoch = u64;

// An access that races with an earlier one.
struct Race {
    Epoch earlier = 0;
    bool earlier_writes = false;
    u64 address = 0;
    int lane = 0;
};

// ---- of shared memory: clock:28 | rank:4 | thread:10 | strong:1 | pc:21
//
// The rank is that of the thread's block in its cluster, exclusive-ored with that of the block whose memory it is: 0
// is a thread of the block itself.

namespace shared_epoch {

constexpr u32 LAST_CLOCK = (1u << 28) - 1;

inline Epoch make(u32 clock, u32 thread, bool strong, u32 pc, u32 rank = 0) {
    return Epoch(clock) << 36 | Epoch(rank) << 32 | Epoch(thread & 1023) << 22 | Epoch(strong) << 21 | (pc & 0x1fffff);
}
inline u32 clock(Epoch e) {
    return u32(e >> 36);
}
inline u32 rank(Epoch e) {
    return u32(e >> 32) & 15;
}
inline u32 thread(Epoch e) {
    return u32(e) >> 22;
}
inline bool strong(Epoch e) {
    return u32(e) >> 21 & 1;
}
inline u32 pc(Epoch e) {
    return u32(e) & 0x1fffff;
}

}  // namespace shared_epoch

// ---- of global memory: block and clock:33 | thread:10 | pc:18 | width:3
//
// A launch of few blocks has more bits for the clock: a call may execute 2^28 warp instructions, or 2^30 where all is
// tried, and no clock grows faster than these.

namespace global_epoch {

constexpr u32 BLOCKS = 1 << 20;
constexpr int CLOCK_SHIFT = 31, THREAD_SHIFT = 21, PC_SHIFT = 3;

struct Layout {
    explicit Layout(u64 blocks) {
        while (block_shift > 44 && blocks > u64(1) << (64 - block_shift)) --block_shift;
    }
    int block_shift = 63;

    u32 last_clock() const {  // this one and later ones are not told apart
        return u32((u64(1) << (block_shift - CLOCK_SHIFT)) - 1);
    }
    Epoch make(u32 block, u32 clock, u32 thread, u32 pc) const {
        return Epoch(block) << block_shift | Epoch(clock < last_clock() ? clock : last_clock()) << CLOCK_SHIFT |
               Epoch(thread) << THREAD_SHIFT | Epoch(pc & 0x3ffff) << PC_SHIFT;
    }
    u32 block(Epoch e) const { return u32(e >> block_shift); }
    u32 clock(Epoch e) const { return u32(e >> CLOCK_SHIFT) & last_clock(); }
};

inline u32 thread(Epoch e) {
    return u32(e >> THREAD_SHIFT) & 1023;
}
inline u32 pc(Epoch e) {
    return u32(e >> PC_SHIFT) & 0x3ffff;
}
inline u32 width(Epoch e) {  // log2 of the bytes of each thread, in the epoch of a line
    return u32(e) & 7;
}

}  // namespace global_epoch

}  // namespace sim
