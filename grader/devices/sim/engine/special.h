// special: PTX's special registers that keep their value while a block runs
//
// Each is a row of a warp's register file, filled when the warp begins; the
// clocks are read by an instruction instead.
#pragma once
#include <string_view>

#include "scalar.h"

namespace sim {

struct SpecialContext {
    const u32* block_size;
    const u32* grid_size;
    const u32* block;  // index in the grid
    u32 warp, warps;
    u32 lane;
    u32 dynamic_shared, all_shared;
    u64 workspace;       // of a cooperative launch
    const u32* cluster;  // blocks of a cluster

    u32 rank(int i) const { return block[i] % cluster[i]; }
    u32 thread() const { return warp * 32 + lane; }
};

struct Special {
    std::string_view name;
    u32 (*value)(const SpecialContext&);
    bool of_block = false;  // differs between the blocks of a launch
};

// Null for a name that is none of them.
const Special* find_special(std::string_view name);

}  // namespace sim
