// clock: vector clocks, a component for each warp of a block
//
// A warp's own clock grows when it releases. What it has acquired of the others is a vector clock: accesses of warp w
// up to known[w] come before the warp's next ones (Mattern 1989).
#pragma once
#include <algorithm>

#include "scalar.h"

namespace sim {

constexpr int WARPS_PER_BLOCK = 32;  // at most

struct VectorClock {
    u32 clock[WARPS_PER_BLOCK] = {};

    u32& operator[](size_t warp) { return clock[warp]; }
    u32 operator[](size_t warp) const { return clock[warp]; }
    bool operator==(const VectorClock& other) const { return std::equal(clock, clock + WARPS_PER_BLOCK, other.clock); }

    void fill(u32 value) { std::fill(clock, clock + WARPS_PER_BLOCK, value); }
    void join(const VectorClock& other) {  // the later of both, for each warp
        for (int i = 0; i < WARPS_PER_BLOCK; ++i) clock[i] = clock[i] > other.clock[i] ? clock[i] : other.clock[i];
    }
    // Whether what a warp did at that clock comes before.
    bool covers(size_t warp, u32 at) const { return at <= clock[warp]; }
    u32 min(size_t warps) const { return *std::min_element(clock, clock + warps); }
    // The same, counted from `origin`; what lies before it counts as 0.
    VectorClock since(u32 origin) const {
        VectorClock out;
        for (int i = 0; i < WARPS_PER_BLOCK; ++i) out.clock[i] = std::max(clock[i], origin) - origin;
        return out;
    }
};

}  // namespace sim
