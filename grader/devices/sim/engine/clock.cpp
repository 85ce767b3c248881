#include "clock.h"

namespace sim {

void VectorClock::add(u32 warp, u32 added, u32 at, u32 existing) {
    if (at <= clock[warp]) return;
    LaneClock* same = nullptr;
    for (LaneClock& known : lanes) {
        if (known.warp != warp) continue;
        if (known.clock < at) known.lanes &= ~added;
        if (known.clock > at) added &= ~known.lanes;
        if (known.clock == at) same = &known;
    }
    if (same)
        same->lanes |= added;
    else if (added)
        lanes.push_back({warp, added, at});
    const u32 together = same ? same->lanes : added;
    if ((together & existing) == existing) clock[warp] = at;
    drop_covered();
}

void VectorClock::drop_covered() {
    const auto is_covered = [&](const LaneClock& l) { return !l.lanes || l.clock <= clock[l.warp]; };
    lanes.erase(std::remove_if(lanes.begin(), lanes.end(), is_covered), lanes.end());
}

bool VectorClock::lane_covers(u32 thread, u32 at) const {
    for (const LaneClock& known : lanes)
        if (known.warp == thread / LANES_PER_WARP && (known.lanes >> thread % LANES_PER_WARP & 1) && at <= known.clock)
            return true;
    return false;
}

void VectorClock::join_lanes(const VectorClock& other) {
    for (const LaneClock& known : other.lanes) add(known.warp, known.lanes, known.clock, ~0u);
    drop_covered();
}

bool VectorClock::includes(const VectorClock& other) const {
    for (int i = 0; i < WARPS_PER_BLOCK; ++i)
        if (other.clock[i] > clock[i]) return false;
    for (const LaneClock& known : other.lanes)
        for (u32 lane = 0; lane < LANES_PER_WARP; ++lane)
            if ((known.lanes >> lane & 1) && !covers(known.warp * LANES_PER_WARP + lane, known.clock)) return false;
    return other.seen <= seen && other.acquired <= acquired;
}

VectorClock VectorClock::since(u32 origin) const {
    VectorClock out = *this;
    for (u32& at : out.clock) at = std::max(at, origin) - origin;
    for (LaneClock& known : out.lanes) known.clock = std::max(known.clock, origin) - origin;
    return out;
}

}  // namespace sim
