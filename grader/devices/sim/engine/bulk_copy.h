// bulk_copy: what instructions that copy in bulk have in common
#pragma once
#include "copies.h"
#include "decode.h"

namespace sim {

// A copy by this lane, whose shared address and bytes are the instruction's first operands, after their checks.
BulkCopy bulk_copy(Warp& warp, const Instruction& in, int lane);
// A store takes what its source holds now.
void take_source(Warp& warp, BulkCopy& copy);
void lower_bulk_store(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry);

}  // namespace sim
