// clock: vector clocks, a component for each warp of a block, and what single lanes did beyond it
//
// A warp's own clock grows when lanes of it release. What a lane has acquired of the others is a vector clock: accesses
// of warp w up to clock[w] come before the lane's next ones (Mattern 1989). Lanes that release without having met the
// rest of their warp release their own accesses alone: these stand in `lanes`.
#pragma once
#include <algorithm>
#include <vector>

#include "scalar.h"

namespace sim {

constexpr int WARPS_PER_BLOCK = 32;  // at most
constexpr u32 LANES_PER_WARP = 32;

// What a vector clock has a component for: warps of the block itself come first, then for each block of its cluster,
// by its rank, its warps, and its warpgroups, whose clocks count groups of wgmma that are done.
constexpr u32 WARPGROUPS_PER_BLOCK = WARPS_PER_BLOCK / 4;
constexpr u32 COMPONENTS_PER_RANK = WARPS_PER_BLOCK + WARPGROUPS_PER_BLOCK;
inline u32 warp_of_rank(u32 rank, u32 warp) {
    return WARPS_PER_BLOCK + rank * COMPONENTS_PER_RANK + warp;
}
inline u32 warpgroup_of_rank(u32 rank, u32 warpgroup) {
    return warp_of_rank(rank, WARPS_PER_BLOCK + warpgroup);
}

// What these lanes of a warp, named by its component, did up to that clock.
struct LaneClock {
    u32 warp, lanes, clock;

    bool operator==(const LaneClock& other) const {
        return warp == other.warp && lanes == other.lanes && clock == other.clock;
    }
};

struct VectorClock {
    u32 clock[WARPS_PER_BLOCK] = {};
    u64 seen = 0;      // of other blocks, by ReleaseAcquire's time: what flags that were read stand for
    u64 acquired = 0;  // and how much of it a fence has come after
    std::vector<LaneClock> lanes;
    std::vector<u32> more;  // the components behind those of the block's own warps, as far as they are known

    u32 at(u32 component) const {
        if (component < WARPS_PER_BLOCK) return clock[component];
        const u32 i = component - WARPS_PER_BLOCK;
        return i < more.size() ? more[i] : 0;
    }
    void set(u32 component, u32 value) {
        if (component < WARPS_PER_BLOCK) {
            clock[component] = value;
            return;
        }
        const u32 i = component - WARPS_PER_BLOCK;
        if (i >= more.size()) more.resize(i + 1, 0);
        more[i] = value;
    }
    // The same, as another block of the cluster counts.
    VectorClock moved(u32 from_rank, u32 to_rank) const;

    u32& operator[](size_t warp) { return clock[warp]; }
    u32 operator[](size_t warp) const { return clock[warp]; }
    bool orders_the_same(const VectorClock& other) const {  // in the block
        return std::equal(clock, clock + WARPS_PER_BLOCK, other.clock) && lanes == other.lanes && more == other.more;
    }

    void fill(u32 value) {
        std::fill(clock, clock + WARPS_PER_BLOCK, value);
        seen = acquired = 0;
        lanes.clear();
        more.clear();
    }
    void join(const VectorClock& other) {  // the later of both, for each warp
        for (int i = 0; i < WARPS_PER_BLOCK; ++i) clock[i] = clock[i] > other.clock[i] ? clock[i] : other.clock[i];
        seen = std::max(seen, other.seen);
        acquired = std::max(acquired, other.acquired);
        if (!other.more.empty()) join_more(other);
        if (!lanes.empty() || !other.lanes.empty()) join_lanes(other);
    }
    // Also all that a warp did up to that clock.
    void reach(u32 warp, u32 at) {
        clock[warp] = at;
        if (!lanes.empty()) drop_covered();
    }
    // Also what these lanes of a warp, which has the lanes `existing`, did up to that clock.
    void add(u32 warp, u32 added, u32 at, u32 existing);
    // Whether what a thread did at that clock comes before.
    bool covers(u32 thread, u32 at) const {
        return at <= clock[thread / LANES_PER_WARP] ||
               (!lanes.empty() && lane_covers(thread / LANES_PER_WARP, thread % LANES_PER_WARP, at));
    }
    bool covers(u32 component, u32 lane, u32 clock_then) const {
        return clock_then <= at(component) || (!lanes.empty() && lane_covers(component, lane, clock_then));
    }
    bool includes(const VectorClock& other) const;
    u32 min(size_t warps) const { return *std::min_element(clock, clock + warps); }
    // The same, counted from `origin`; what lies before it counts as 0.
    VectorClock since(u32 origin) const;

 private:
    bool lane_covers(u32 component, u32 lane, u32 at) const;
    void join_more(const VectorClock& other);
    void join_lanes(const VectorClock& other);
    void drop_covered();
};

}  // namespace sim
