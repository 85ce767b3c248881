#include "handover.h"

#include <algorithm>

#include "operation.h"

namespace sim {

// A value is read after its access has been noted: what the place stood for is
// looked up when the block comes next.
void Handover::settle(Handed& mine) {
    for (const u8* place : mine.read) {
        const auto found = places_.find(place);
        if (found != places_.end()) mine.seen = std::max(mine.seen, found->second);
    }
    mine.read.clear();
    if (mine.acquires) mine.received = mine.seen;
    mine.acquires = false;
}

void Handover::fence(Handed& mine, const u32* clocks) {
    const std::lock_guard<std::mutex> lock(mutex_);
    settle(mine);
    mine.received = mine.seen;
    for (int i = 0; i < LANES; ++i) mine.fenced[i] = std::max(mine.fenced[i], clocks[i]);
}

void Handover::touch(Handed& mine, Mask mask, u8* const* at, Access access, bool acquires) {
    const std::lock_guard<std::mutex> lock(mutex_);
    settle(mine);
    mine.acquires = acquires;
    if (access != Access::write) each_lane(mask, [&](int l) { mine.read.push_back(at[l]); });
    if (access == Access::read || std::all_of(mine.fenced, mine.fenced + LANES, [](u32 c) { return c == 0; })) return;
    ++time_;
    if (!std::equal(mine.fenced, mine.fenced + LANES, mine.given)) {
        std::copy(mine.fenced, mine.fenced + LANES, mine.given);
        Given& given = history_[mine.block].emplace_back();
        std::copy(mine.given, mine.given + LANES, given.clock);
        given.time = time_;
    }
    each_lane(mask, [&](int l) { places_[at[l]] = time_; });
}

bool Handover::ordered(u32 block, u32 warp, u32 clock, Handed& mine) {
    const std::lock_guard<std::mutex> lock(mutex_);
    settle(mine);
    const auto found = history_.find(block);
    if (found == history_.end()) return false;
    for (const Given& given : found->second)
        if (given.clock[warp] >= clock) return given.time <= mine.received;
    return false;
}

}  // namespace sim
