#include "ordering.h"

#include <algorithm>

#include "cluster.h"
#include "operation.h"

namespace sim {

void Ordering::forget() {
    std::fill(released_, released_ + WARPS_PER_BLOCK, VectorClock());
    std::fill(pending_, pending_ + WARPS_PER_BLOCK, VectorClock());
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
    auto& flags = warp.block->cluster->flags;
    const u32 rank = warp.block->rank;
    each_lane(mask, [&](int l) {
        VectorClock& flag = flags[at[l]];
        if (access != Access::write) pending_[warp.index].join(rank ? flag.moved(0, rank) : flag);
        if (access != Access::read) flag.join(rank ? released_[warp.index].moved(rank, 0) : released_[warp.index]);
    });
}

const VectorClock& Ordering::released(const Warp& warp) const {
    return released_[warp.index];
}

}  // namespace sim
