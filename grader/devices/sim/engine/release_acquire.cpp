#include "release_acquire.h"

#include <algorithm>

#include "operation.h"
#include "warp.h"

namespace sim {

// A value is read after its access has been recorded: what the place stood for is
// looked up when the block comes next.
void ReleaseAcquire::settle_locked(BlockReleases& mine) {
    if (mine.read.empty()) return;
    VectorClock seen;
    for (const u8* place : mine.read) {
        const auto found = places_.find(place);
        if (found != places_.end()) seen.seen = std::max(seen.seen, found->second);
    }
    mine.read.clear();
    mine.reader->see(mine.lanes, seen);
    if (mine.acquires) mine.reader->acquire_seen(mine.lanes);
    mine.acquires = false;
}

void ReleaseAcquire::settle(BlockReleases& mine) {
    const std::lock_guard<std::mutex> lock(mutex_);
    settle_locked(mine);
}

void ReleaseAcquire::fence(BlockReleases& mine, Warp& warp, Mask lanes, const VectorClock& known) {
    const std::lock_guard<std::mutex> lock(mutex_);
    settle_locked(mine);
    warp.acquire_seen(lanes);
    mine.fenced.join(known);
}

void ReleaseAcquire::record_strong_access(
    BlockReleases& mine, Warp& warp, Mask mask, u8* const* at, Access access, bool acquires) {
    const std::lock_guard<std::mutex> lock(mutex_);
    settle_locked(mine);
    if (access != Access::write) {
        each_lane(mask, [&](int l) { mine.read.push_back(at[l]); });
        mine.reader = &warp;
        mine.lanes = mask;
        mine.acquires = acquires;
    }
    if (access == Access::read || mine.fenced.orders_the_same(VectorClock())) return;
    ++time_;
    if (!mine.fenced.orders_the_same(mine.released)) {
        mine.released = mine.fenced;
        history_[mine.block].push_back({mine.released, time_});
    }
    each_lane(mask, [&](int l) { places_[at[l]] = time_; });
}

bool ReleaseAcquire::ordered(u32 block, u32 thread, u32 clock, const Warp& warp, int lane, BlockReleases& mine) {
    const std::lock_guard<std::mutex> lock(mutex_);
    settle_locked(mine);
    const auto found = history_.find(block);
    if (found == history_.end()) return false;
    for (const Release& release : found->second)
        if (release.known.covers(thread, clock)) return release.time <= warp.acquired(lane);
    return false;
}

}  // namespace sim
