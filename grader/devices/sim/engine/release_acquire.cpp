#include "release_acquire.h"

#include <algorithm>

#include "operation.h"

namespace sim {

// A value is read after its access has been recorded: what the place stood for is
// looked up when the block comes next.
void ReleaseAcquire::settle(BlockReleases& mine) {
    for (const u8* place : mine.read) {
        const auto found = places_.find(place);
        if (found != places_.end()) mine.observed = std::max(mine.observed, found->second);
    }
    mine.read.clear();
    if (mine.acquires) mine.acquired = mine.observed;
    mine.acquires = false;
}

void ReleaseAcquire::fence(BlockReleases& mine, const VectorClock& known) {
    const std::lock_guard<std::mutex> lock(mutex_);
    settle(mine);
    mine.acquired = mine.observed;
    mine.fenced.join(known);
}

void ReleaseAcquire::record_strong_access(BlockReleases& mine, Mask mask, u8* const* at, Access access, bool acquires) {
    const std::lock_guard<std::mutex> lock(mutex_);
    settle(mine);
    mine.acquires = acquires;
    if (access != Access::write) each_lane(mask, [&](int l) { mine.read.push_back(at[l]); });
    if (access == Access::read || mine.fenced == VectorClock()) return;
    ++time_;
    if (!(mine.fenced == mine.released)) {
        mine.released = mine.fenced;
        history_[mine.block].push_back({mine.released, time_});
    }
    each_lane(mask, [&](int l) { places_[at[l]] = time_; });
}

bool ReleaseAcquire::ordered(u32 block, u32 warp, u32 clock, BlockReleases& mine) {
    const std::lock_guard<std::mutex> lock(mutex_);
    settle(mine);
    const auto found = history_.find(block);
    if (found == history_.end()) return false;
    for (const Release& release : found->second)
        if (release.known.covers(warp, clock)) return release.time <= mine.acquired;
    return false;
}

}  // namespace sim
