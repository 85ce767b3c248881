// control: branches, calls, returns, traps, fences and the barriers of a block
#include "block.h"
#include "decode.h"
#include "operation.h"
#include "print.h"

namespace sim {

namespace {

void nothing(Warp&, const Instruction&, Mask) {}

template <bool device>
void fence(Warp& warp, const Instruction&, Mask) {
    warp.block->fence(warp, device);
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
            warp, warp.here, l, "crash",
            "jumps to entry " + std::to_string(index[l]) + " of a branch table with " + plural(table.size(), "entry")));
    });
}

void leave(Warp& warp, const Instruction&, Mask mask) {
    each_lane(mask, [&](int l) { warp.pc[l] = warp.here; });
    warp.alive &= ~mask;
}

void copy_local(const Warp& warp, int lane, const std::vector<CallSite::Copy>& copies) {
    u8* bytes = warp.local + u64(lane) * warp.local_bytes;
    u8* shadow = warp.local_shadow + u64(lane) * warp.local_bytes;
    for (const auto& copy : copies) {
        std::memcpy(bytes + copy.to, bytes + copy.from, copy.bytes);
        std::memcpy(shadow + copy.to, shadow + copy.from, copy.bytes);
    }
}

// A function keeps its registers in one place: the decoder refuses recursion that it sees, this that through pointers.
void refuse_recursion(Warp& warp, int lane, const CallSite& site) {
    Block& block = *warp.block;
    for (const Caller& caller : warp.callers[lane])
        if (block.program->calls[caller.site].target == site.target)
            block.stop_at(block.at(
                warp, warp.here, lane, "unsupported",
                "recursion: " + demangled(site.callee) + " calls itself, which is not supported by the simulator"));
}

void enter(Warp& warp, Mask mask, u32 index) {
    const CallSite& site = warp.block->program->calls[index];
    each_lane(mask, [&](int l) {
        refuse_recursion(warp, l, site);
        copy_local(warp, l, site.arguments);
        warp.callers[l].push_back({warp.here, index});
        warp.pc[l] = site.target;
    });
}

void call(Warp& warp, const Instruction& in, Mask mask) {
    const CallSite& site = warp.block->program->calls[in.target];
    if (!site.builtin) return enter(warp, mask, in.target);
    call_builtin(warp, site, mask);
    warp.move(mask, warp.here + 1);
}

// Through a pointer: every lane may go elsewhere.
void call_indirect(Warp& warp, const Instruction& in, Mask mask) {
    const IndirectCall& known = warp.block->program->indirect_calls[in.target];
    const u64* pointer = warp.row<const u64>(in.operand[0]);
    each_lane(mask, [&](int l) {
        for (auto& [address, site] : known)
            if (address == pointer[l]) return enter(warp, Mask(1) << l, site);
        Block& block = *warp.block;
        block.stop_at(block.at(
            warp, warp.here, l, "crash",
            pointer[l] ? "calls through a pointer that holds no function of these parameters"
                       : "calls through a null pointer"));
    });
}

// Back to the caller; from the kernel itself, out.
void back(Warp& warp, const Instruction& in, Mask mask) {
    Mask out = 0;
    each_lane(mask, [&](int l) {
        if (warp.callers[l].empty()) {
            out |= Mask(1) << l;
            return;
        }
        const Caller caller = warp.callers[l].back();
        warp.callers[l].pop_back();
        copy_local(warp, l, warp.block->program->calls[caller.site].results);
        warp.pc[l] = caller.pc + 1;
    });
    leave(warp, in, out);
}

void trap(Warp& warp, const Instruction&, Mask mask) {
    Block& block = *warp.block;
    block.stop_at(block.at(warp, warp.here, __builtin_ctz(mask), "crash", "the kernel executes a trap"));
}

// ---- barriers of the block

template <Reduction op>
void barrier(Warp& warp, const Instruction& in, Mask mask) {
    const int l = __builtin_ctz(mask);
    Mask votes = 0;
    if (op != Reduction::none) votes = warp.predicate(in.operand[3]);
    warp.block->wait(
        warp, in, mask, warp.row<const u32>(in.operand[1])[l], warp.row<const u32>(in.operand[2])[l], votes, op);
}

void arrive(Warp& warp, const Instruction& in, Mask mask) {
    const int l = __builtin_ctz(mask);
    warp.move(mask, warp.here + 1);
    warp.block->arrive(warp, in, mask, warp.row<const u32>(in.operand[1])[l], warp.row<const u32>(in.operand[2])[l]);
}

}  // namespace

void control_rows(Table& t) {
    t.add("bra{,.uni}", {nothing, {}}, build_branch, Flow::branch);
    t.add("brx.idx{,.uni}", {branch_indexed, {}}, build_branch_table, Flow::leave);
    t.add("call{,.uni}", {call, {}}, build_call, Flow::leave);
    t.add("call.indirect", {call_indirect, {}}, build_nothing, Flow::leave);
    t.add("ret{,.uni}", {back, {}}, build_nothing, Flow::leave);
    t.add("exit", {leave, {}}, build_nothing, Flow::leave);
    t.add("trap", {trap, {}}, build_nothing, Flow::leave);
    t.add("{bar,barrier,barrier.cta}.sync{,.aligned}", {barrier<Reduction::none>, {}}, build_barrier, Flow::leave);
    t.add("{bar,barrier,barrier.cta}.arrive{,.aligned}", {arrive, {}}, build_barrier, Flow::leave);
    const Signature count{1, {shape_of<u32>()}}, truth{1, {PREDICATE}};
    const std::string red = "{bar,barrier,barrier.cta,bar.cta}.red";
    t.add(red + ".popc{,.aligned}.u32", {barrier<Reduction::popc>, count}, build_barrier_reduction, Flow::leave);
    t.add(red + ".and{,.aligned}.pred", {barrier<Reduction::all>, truth}, build_barrier_reduction, Flow::leave);
    t.add(red + ".or{,.aligned}.pred", {barrier<Reduction::any>, truth}, build_barrier_reduction, Flow::leave);
    const std::string orders = "fence{,.sc,.acq_rel,.acquire,.release}.";
    t.add("membar.cta", {fence<false>, {}}, build_fence);
    t.add("membar.{gl,sys}", {fence<true>, {}}, build_fence);
    t.add(orders + "{cta,cluster}", {fence<false>, {}}, build_fence);
    t.add(orders + "{gpu,sys}", {fence<true>, {}}, build_fence);
    t.add("nanosleep.u32", {nothing, {}}, build_nothing);
    t.add("pmevent{,.mask}", {nothing, {}}, build_nothing);
    // A cluster is one block: its barrier is one of the block, beside the 16 that can be named.
    t.add("barrier.cluster.arrive{,.release,.relaxed}{,.aligned}", {nothing, {}}, build_nothing);
    t.add(
        "barrier.cluster.wait{,.acquire}{,.aligned}", {barrier<Reduction::none>, {}}, build_cluster_barrier,
        Flow::leave);
    t.add("griddepcontrol.{launch_dependents,wait}", {nothing, {}}, build_nothing);
}

}  // namespace sim
