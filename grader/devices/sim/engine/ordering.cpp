#include "ordering.h"

#include <algorithm>

#include "block.h"
#include "operation.h"

namespace sim {

void Ordering::forget() {
    std::fill(released_, released_ + WARPS_PER_BLOCK, VectorClock());
    std::fill(pending_, pending_ + WARPS_PER_BLOCK, VectorClock());
    flags_.clear();
}

void Ordering::fence(Warp& warp, Mask lanes) {
    warp.acquire(lanes, pending_[warp.index]);
    warp.release(lanes, released_[warp.index]);
    warp.tick();
}

bool Ordering::has_read(const Warp& warp, u32 thread, u32 clock) const {
    return pending_[warp.index].covers(thread, clock);
}

void Ordering::record_strong_access(const Warp& warp, Mask mask, u8* const* at, Access access) {
    each_lane(mask, [&](int l) {
        VectorClock& flag = flags_[at[l]];
        if (access != Access::write) pending_[warp.index].join(flag);
        if (access != Access::read) flag.join(released_[warp.index]);
    });
}

}  // namespace sim
