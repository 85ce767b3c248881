// occupancy: how many blocks of a kernel a multiprocessor holds at once
//
// By threads, blocks and shared memory. Registers are given out by ptxas, which is
// not run here: a kernel that needs many of them fits less often on the card.
#pragma once
#include "device.h"

namespace sim {

u64 resident_blocks(const Card& card, const Program& program, u64 threads, u64 dynamic_shared);
u64 available_shared(const Card& card, const Program& program, u64 blocks, u64 threads);  // dynamic bytes a block

}  // namespace sim
