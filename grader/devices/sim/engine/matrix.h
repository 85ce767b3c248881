// matrix: what the instructions on matrices have in common
#pragma once
#include "decode.h"
#include "warp.h"

namespace sim {

// The last operand of their instructions is the member mask of Flow::warp_sync: all lanes.
constexpr int MEMBERS = OPERANDS - 1;

// They are .aligned: a warp that lacks threads cannot run them. Throws Halt.
void require_whole_warp(Warp& warp, const Instruction& in, Mask mask);

// The first part of an instruction that all lanes of a warp run together.
Instruction warp_sync_instruction(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry);

// Registers of one operand, each of the shape.
struct Group {
    Shape shape;
    int count;
};
void append_sources(Decoder& d, const ptx::Operand& operand, Group group, std::vector<s32>& rows);
void append_destinations(Decoder& d, const ptx::Operand& operand, Group group, std::vector<s32>& rows);

}  // namespace sim
