// check_access: the addresses of a warp's access -> host addresses, after every
// check
//
// One function for each state space. Each throws Halt with a finding when a
// lane is out of bounds, misaligned, reads what nobody wrote, writes what is
// read-only, or races.
#pragma once
#include <string>

#include "program.h"

namespace sim {

struct Block;

Spread check_global_access(Warp&, const Instruction&, Mask, u32 bytes, Access, u8** at);
Spread check_shared_access(Warp&, const Instruction&, Mask, u32 bytes, Access, u8** at);
Spread check_cluster_access(Warp&, const Instruction&, Mask, u32 bytes, Access, u8** at);  // shared::cluster
Spread check_local_access(Warp&, const Instruction&, Mask, u32 bytes, Access, u8** at);
Spread check_generic_access(Warp&, const Instruction&, Mask, u32 bytes, Access, u8** at);

// The instruction's check, with the host address of every lane.
void check_each_lane(Warp&, const Instruction&, Mask, u32 bytes, Access, u8** at);
// The same at addresses that are not the instruction's own.
void check_global_at(Warp&, const Instruction&, const u64* address, Mask, u32 bytes, Access, u8** at);
// In the shared memory of a block of the cluster, by offsets in it.
void check_shared_at(Warp&, Block& owner, const Instruction&, const u64* offset, Mask, u32 bytes, Access, u8** at);
void check_shared_bounds(Warp&, const u64* address, Mask, u32 bytes, Access);  // bounds and alignment alone
void lane_addresses(const Warp&, const Instruction&, u64* address);
// The lanes that access global memory, and those that access shared memory, by an instruction of this check. Generic
// addresses in shared memory become offsets.
struct Spaces {
    Mask global = 0, shared = 0;
};
Spaces spaces_of(AccessCheck check, Mask, u64* address);

// Host bytes of a generic address without a finding: for strings that printf
// and assert name. Null when unmapped.
const u8* peek(Warp& warp, int lane, u64 generic, u64* available);

bool is_builtin(const std::string& function);  // vprintf, __assertfail

}  // namespace sim
