// occupancy: how many blocks of a kernel a multiprocessor holds at once
//
// By threads, blocks and shared memory. Registers are given out by ptxas, which is
// not run here: a kernel that needs many of them fits less often on the card.
#pragma once
#include "device.h"

namespace sim {

u64 resident_blocks(const Card& card, const Program& program, u64 threads, u64 dynamic_shared);
u64 available_shared(const Card& card, const Program& program, u64 blocks, u64 threads);  // dynamic bytes a block

// Clusters of so many blocks that run at the same time where each multiprocessor takes `blocks`. The blocks of one stay
// in one part of the card; here the card is one part, so a real one may run fewer.
u64 active_clusters(const Card& card, u64 blocks, u64 size);

}  // namespace sim
