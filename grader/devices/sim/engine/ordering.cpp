#include "ordering.h"

#include <algorithm>

#include "block.h"
#include "operation.h"

namespace sim {

void Ordering::forget() {
    std::fill(released_, released_ + LANES, Knowledge());
    std::fill(pending_, pending_ + LANES, Knowledge());
    flags_.clear();
}

void Ordering::fence(Warp& warp) {
    Knowledge& pending = pending_[warp.index];
    for (int i = 0; i < LANES; ++i) warp.seen[i] = std::max(warp.seen[i], pending.clock[i]);
    Knowledge& released = released_[warp.index];
    std::copy(warp.seen, warp.seen + LANES, released.clock);
    released.clock[warp.index] = warp.clock;
    warp.clock += 1;
    warp.floor = *std::min_element(warp.seen, warp.seen + warp.block->warps.size());
}

bool Ordering::read(const Warp& warp, u32 other, u32 clock) const {
    return pending_[warp.index].clock[other] >= clock;
}

void Ordering::strong(Warp& warp, Mask mask, u8* const* at, Access access) {
    each_lane(mask, [&](int l) {
        Knowledge& flag = flags_[at[l]];
        if (access != Access::write) pending_[warp.index].join(flag);
        if (access != Access::read) flag.join(released_[warp.index]);
    });
}

}  // namespace sim
