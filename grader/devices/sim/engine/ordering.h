// ordering: what fences and strong accesses order inside a block, beside its
// barriers
//
// Lanes that fence and then write a flag strongly release what they know and did;
// those of a warp that reads the flag strongly and then fences acquire it. So data
// passed on through locks and flags are no race. Kept only for kernels that fence.
#pragma once
#include "clock.h"
#include "program.h"

namespace sim {

struct Warp;

class Ordering {
 public:
    void forget();
    void fence(Warp& warp, Mask lanes);
    void record_strong_access(const Warp& warp, Mask mask, u8* const* at, Access access);
    const VectorClock& released(const Warp& warp) const;  // by its fences
    // Whether a warp has read, without a fence since, that a thread came to that
    // clock: enough for global memory, whose findings err on the quiet side.
    bool has_read(const Warp& warp, u32 thread, u32 clock) const;

 private:
    VectorClock released_[WARPS_PER_BLOCK], pending_[WARPS_PER_BLOCK];  // of each warp
};

}  // namespace sim
