// rounds: which of two accesses comes first, where barriers stand between them on all ways but through a loop
#pragma once
#include <string>

#include "block.h"

namespace sim {

// What a race between two instructions of a block lacks: ", with no barrier between"; or, where every way from the
// write to the read has a barrier and a way from the read to the write has none, that way.
std::string missing_barrier(const Block& block, u32 write, u32 read);

}  // namespace sim
