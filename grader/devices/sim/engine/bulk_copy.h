// bulk_copy: what instructions that copy in bulk have in common
#pragma once
#include "copies.h"
#include "decode.h"

namespace sim {

// A copy by this lane, whose shared address and bytes are the instruction's first operands, after their checks.
BulkCopy bulk_copy(Warp& warp, const Instruction& in, int lane);
void check_bulk(Warp& warp, const BulkCopy& copy);  // its bytes, and its range of the own shared memory
// A store takes what its source holds now.
void take_source(Warp& warp, BulkCopy& copy);
// A load that completes on an mbarrier: of this block, or of each block that `receivers` names.
void issue_load(Warp& warp, const Instruction& in, u64 barrier, s32 receivers, BulkCopy copy);
void lower_bulk_load(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry);
void lower_bulk_store(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry);

}  // namespace sim
