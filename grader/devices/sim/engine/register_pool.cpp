#include "register_pool.h"

#include <algorithm>

#include "block.h"
#include "decode.h"
#include "matrix.h"
#include "operation.h"

namespace sim {

namespace {

constexpr u32 REGISTERS = 65536, STEP = 8, MOST = 256, WARPS = 4;  // warps of a multiprocessor's four parts

// CUDA C++ Programming Guide 13.0, "Launch Bounds": what a multiprocessor has, shared by the threads that must fit, as
// many warps in each of its parts. ptxas gives a kernel no more than its warps ever take (measured, nvcc 13.0).
u32 registers_at_launch(const Limits& limits) {
    u32 each = u32(align_up(limits.max_registers, STEP));
    if (!each && limits.bounded) {
        const u64 warps = align_up(limits.max_threads, LANES) / LANES * std::max(limits.min_blocks, 1u);
        each = std::min(u32(REGISTERS / (align_up(warps, WARPS) * LANES)), MOST) / STEP * STEP;
    }
    return limits.taken_registers ? std::min(each, limits.taken_registers) : each;
}

}  // namespace

void RegisterPool::forget() {
    any_ = false;
}

void RegisterPool::begin() {
    if (any_) return;
    any_ = true;
    each_ = registers_at_launch(block_.program->limits);
    of_warp_.assign(block_.warps.size(), each_);
    free_ = 0;
    waiting_ = 0;
}

void RegisterPool::stop(Warp& warp, FindingKind kind, const std::string& message) {
    block_.stop_at(block_.at(warp, warp.here, 0, kind, message));
}

void RegisterPool::give_back(Warp& warp, u32 registers) {
    begin();
    u32& mine = of_warp_[warp.index];
    if (!each_) return;
    if (registers > mine)
        stop(
            warp, FindingKind::crash,
            "gives registers back down to " + std::to_string(registers) + " a thread, and has only " +
                std::to_string(mine));
    free_ += u64(mine - registers) * LANES;
    mine = registers;
    for (Warp& other : block_.warps)
        if (waiting_ >> other.index & 1) other.at_barrier = 0;
    waiting_ = 0;
}

bool RegisterPool::take(Warp& warp, u32 registers) {
    begin();
    u32& mine = of_warp_[warp.index];
    if (!each_) return true;
    if (registers < mine)
        stop(
            warp, FindingKind::crash,
            "takes registers up to " + std::to_string(registers) + " a thread, and has " + std::to_string(mine));
    const u64 wanted = u64(registers - mine) * LANES;
    if (wanted > free_) {
        waiting_ |= 1u << warp.index;
        warp.at_barrier = warp.alive;
        return false;
    }
    free_ -= wanted;
    mine = registers;
    return true;
}

void RegisterPool::deadlock() {
    for (Warp& warp : block_.warps) {
        if (!any_ || !(waiting_ >> warp.index & 1)) continue;
        const u32 pc = warp.pc[__builtin_ctz(warp.alive)];
        block_.stop_at(block_.at(
            warp, pc, 0, FindingKind::deadlock,
            "warp " + std::to_string(warp.index) +
                " waits for registers that the other warps do not give back: the block has " +
                std::to_string(u64(each_) * LANES * block_.warps.size()) + " (" + std::to_string(each_) +
                " for each of its threads), of which " + std::to_string(free_) + " are free"));
    }
}

namespace {

void decrease(Warp& warp, const Instruction& in, Mask mask) {
    require_whole_warp(warp, in, mask);
    warp.block->registers.give_back(warp, u32(in.immediate));
}

void come(Warp& warp, const Instruction& in, Mask mask) {
    require_whole_warp(warp, in, mask);
}

void increase(Warp& warp, const Instruction& in, Mask mask) {
    const bool done = warp.block->registers.take(warp, u32(in.immediate));
    warp.move(mask, done ? warp.here + 1 : warp.here);
}

Instruction with_count(Decoder& d, const ptx::Instruction& in, Instruction out) {
    d.require(in, 1);
    if (in.operands[0].kind != ptx::OperandKind::integer) d.unsupported("the operand of " + std::string(in.opcode));
    out.immediate = s64(in.operands[0].bits);
    return out;
}

void lower_decrease(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.emit(with_count(d, in, warp_sync_instruction(d, in, entry)));
}

// The lanes meet, then they wait.
void lower_increase(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
    d.emit(warp_sync_instruction(d, in, entry));
    Instruction out = with_count(d, in, d.prototype(in, entry));
    d.note_registers_taken(u32(out.immediate));
    out.run = increase;
    out.flow = Flow::leave;
    d.emit(out);
}

}  // namespace

void register_pool_entries(Table& t) {
    t.add("setmaxnreg.dec.sync.aligned.u32", {decrease, {}}, lower_decrease, Flow::warp_sync);
    t.add("setmaxnreg.inc.sync.aligned.u32", {come, {}}, lower_increase, Flow::warp_sync);
}

}  // namespace sim
