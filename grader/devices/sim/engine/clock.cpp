#include "clock.h"

namespace sim {

void VectorClock::add(u32 warp, u32 added, u32 at, u32 existing) {
    if (at <= this->at(warp)) return;
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
    if ((together & existing) == existing) set(warp, at);
    drop_covered();
}

void VectorClock::drop_covered() {
    const auto is_covered = [&](const LaneClock& l) { return !l.lanes || l.clock <= at(l.warp); };
    lanes.erase(std::remove_if(lanes.begin(), lanes.end(), is_covered), lanes.end());
}

bool VectorClock::lane_covers(u32 component, u32 lane, u32 at) const {
    for (const LaneClock& known : lanes)
        if (known.warp == component && (known.lanes >> lane & 1) && at <= known.clock) return true;
    return false;
}

void VectorClock::join_more(const VectorClock& other) {
    if (more.size() < other.more.size()) more.resize(other.more.size(), 0);
    for (size_t i = 0; i < other.more.size(); ++i) more[i] = std::max(more[i], other.more[i]);
}

VectorClock VectorClock::moved(u32 from_rank, u32 to_rank) const {
    if (from_rank == to_rank) return *this;
    VectorClock out;
    out.seen = seen;
    out.acquired = acquired;
    out.more = more;
    for (u32 w = 0; w < WARPS_PER_BLOCK; ++w) {
        if (clock[w]) out.set(warp_of_rank(from_rank, w), clock[w]);
        out.clock[w] = out.at(warp_of_rank(to_rank, w));
        if (out.clock[w]) out.set(warp_of_rank(to_rank, w), 0);
    }
    const u32 home = warp_of_rank(to_rank, 0);
    for (LaneClock known : lanes) {
        if (known.warp < WARPS_PER_BLOCK) known.warp = warp_of_rank(from_rank, known.warp);
        if (known.warp - home < WARPS_PER_BLOCK) known.warp -= home;
        out.lanes.push_back(known);
    }
    return out;
}

void VectorClock::join_lanes(const VectorClock& other) {
    for (const LaneClock& known : other.lanes) add(known.warp, known.lanes, known.clock, ~0u);
    drop_covered();
}

bool VectorClock::includes(const VectorClock& other) const {
    for (int i = 0; i < WARPS_PER_BLOCK; ++i)
        if (other.clock[i] > clock[i]) return false;
    for (u32 i = 0; i < other.more.size(); ++i)
        if (other.more[i] > at(WARPS_PER_BLOCK + i)) return false;
    for (const LaneClock& known : other.lanes)
        for (u32 lane = 0; lane < LANES_PER_WARP; ++lane)
            if ((known.lanes >> lane & 1) && !covers(known.warp, lane, known.clock)) return false;
    return other.seen <= seen && other.acquired <= acquired;
}

VectorClock VectorClock::since(u32 origin) const {
    VectorClock out = *this;
    for (u32& at : out.clock) at = std::max(at, origin) - origin;
    for (LaneClock& known : out.lanes) known.clock = std::max(known.clock, origin) - origin;
    return out;
}

}  // namespace sim
