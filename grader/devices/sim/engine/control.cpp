// control: branches, traps, fences and the barriers of a block
#include "block.h"
#include "decode.h"
#include "operation.h"

namespace sim {

namespace {

void nothing(Warp&, const Instruction&, Mask) {}

template <bool device>
void fence(Warp& warp, const Instruction&, Mask mask) {
    warp.block->fence(warp, mask, device);
}

// A hint, and others go on meanwhile.
void sleep(Warp& warp, const Instruction&, Mask mask) {
    warp.move(mask, warp.here + 1);
    warp.block->yields = true;
}

// brx.idx: every lane goes to its own entry of the table
void branch_indexed(Warp& warp, const Instruction& in, Mask mask) {
    const auto& table = warp.block->program->branch_tables[in.target];
    const u32* index = warp.row<const u32>(in.operand[0]);
    each_lane(mask, [&](int l) {
        if (index[l] < table.size()) {
            warp.pc[l] = table[index[l]];
            return;
        }
        Block& block = *warp.block;
        block.stop_at(block.at(
            warp, warp.here, l, FindingKind::crash,
            "jumps to entry " + std::to_string(index[l]) + " of a branch table with " + plural(table.size(), "entry")));
    });
}

void leave(Warp& warp, const Instruction&, Mask mask) {
    each_lane(mask, [&](int l) { warp.pc[l] = warp.here; });
    warp.block->leave(warp, mask);
}

void trap(Warp& warp, const Instruction&, Mask mask) {
    Block& block = *warp.block;
    block.stop_at(block.at(warp, warp.here, __builtin_ctz(mask), FindingKind::crash, "the kernel executes a trap"));
}

void breakpoint(Warp& warp, const Instruction&, Mask mask) {
    Block& block = *warp.block;
    block.stop_at(block.at(
        warp, warp.here, __builtin_ctz(mask), FindingKind::crash,
        "the kernel executes a breakpoint, which without a debugger ends it with an error"));
}

// ---- barriers of the block

template <Reduction op>
void barrier(Warp& warp, const Instruction& in, Mask mask) {
    const int l = __builtin_ctz(mask);
    Mask votes = 0;
    if (op != Reduction::none) votes = warp.predicate(in.operand[3]);
    warp.block->wait(
        warp, mask, warp.row<const u32>(in.operand[1])[l], warp.row<const u32>(in.operand[2])[l], votes, op);
}

void arrive(Warp& warp, const Instruction& in, Mask mask) {
    const int l = __builtin_ctz(mask);
    warp.move(mask, warp.here + 1);
    warp.block->arrive(warp, mask, warp.row<const u32>(in.operand[1])[l], warp.row<const u32>(in.operand[2])[l]);
}

}  // namespace

void control_entries(Table& t) {
    t.add("bra{,.uni}", {nothing, {}}, lower_branch, Flow::branch);
    t.add("brx.idx{,.uni}", {branch_indexed, {}}, lower_branch_table, Flow::leave);
    t.add("exit", {leave, {}}, lower_nothing, Flow::leave);
    t.add("trap", {trap, {}}, lower_nothing, Flow::leave);
    t.add("brkpt", {breakpoint, {}}, lower_nothing, Flow::leave);
    t.add("{bar,barrier,barrier.cta}.sync{,.aligned}", {barrier<Reduction::none>, {}}, lower_barrier, Flow::leave);
    t.add("{bar,barrier,barrier.cta}.arrive{,.aligned}", {arrive, {}}, lower_barrier, Flow::leave);
    const Signature count{1, {shape_of<u32>()}}, truth{1, {PREDICATE}};
    const std::string red = "{bar,barrier,barrier.cta,bar.cta}.red";
    t.add(red + ".popc{,.aligned}.u32", {barrier<Reduction::popc>, count}, lower_barrier_reduction, Flow::leave);
    t.add(red + ".and{,.aligned}.pred", {barrier<Reduction::all>, truth}, lower_barrier_reduction, Flow::leave);
    t.add(red + ".or{,.aligned}.pred", {barrier<Reduction::any>, truth}, lower_barrier_reduction, Flow::leave);
    const std::string orders = "fence{,.sc,.acq_rel,.acquire,.release}.";
    t.add("membar.cta", {fence<false>, {}}, lower_fence);
    t.add("membar.{gl,sys}", {fence<true>, {}}, lower_fence);
    t.add(orders + "{cta,cluster}", {fence<false>, {}}, lower_fence);
    t.add(orders + "{gpu,sys}", {fence<true>, {}}, lower_fence);
    t.add("nanosleep.u32", {sleep, {}}, lower_nothing, Flow::leave);
    t.add("pmevent{,.mask}", {nothing, {}}, lower_nothing);
}

}  // namespace sim
