// swizzle: how tensor copies and wgmma permute the 16-byte chunks of a tile in shared memory
//
// Bits 4 and up of an address are exclusive-ored with bits 7 and up: one bit in the 32-byte mode, two in the 64-byte
// mode, three in the 128-byte mode. It is its own inverse. PTX ISA 5.5.7, "Swizzling Modes"; the address counts, not
// the offset in the tile.
#pragma once
#include "scalar.h"

namespace sim {

// `mode`: CUtensorMapSwizzle: 0 none, 1 to 3 for 32, 64 and 128 bytes
inline u64 swizzled(u64 address, u32 mode) {
    const u64 bits = ((u64(1) << mode) - 1) << 4;
    return address ^ (address >> 3 & bits);
}

}  // namespace sim
