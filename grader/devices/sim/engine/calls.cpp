// calls: functions that call functions, and themselves
#include "block.h"
#include "decode.h"
#include "operation.h"
#include "builtins.h"

namespace sim {

namespace {

constexpr u64 RETURN_BYTES = 8;  // the least that a call takes of the stack: where it returns to

// So many bytes, which are nearly always those of one register.
void copy(u8* to, const u8* from, u32 bytes) {
    switch (bytes) {
        case 4:
            std::memcpy(to, from, 4);
            break;
        case 8:
            std::memcpy(to, from, 8);
            break;
        default:
            std::memcpy(to, from, bytes);
    }
}

// Arguments or results of a function that does not call itself: its places and its caller's are apart.
void hand_over(const Warp& warp, int lane, const std::vector<CallSite::Copy>& copies) {
    const u64 origin = u64(lane) * warp.local_bytes;
    for (u8* bytes : {warp.local + origin, warp.local_shadow + origin})
        for (const auto& one : copies) copy(bytes + one.to, bytes + one.from, one.bytes);
}

// Arguments or results pass by `between`, which may change what is at either end.
template <class F>
void hand_over(const Warp& warp, int lane, const std::vector<CallSite::Copy>& copies, F between) {
    std::vector<u8> carried;
    const u64 origin = u64(lane) * warp.local_bytes;
    for (const auto& copy : copies)
        for (const u8* from : {warp.local + origin + copy.from, warp.local_shadow + origin + copy.from})
            carried.insert(carried.end(), from, from + copy.bytes);
    between();
    const u8* next = carried.data();
    for (const auto& copy : copies)
        for (u8* to : {warp.local + origin + copy.to, warp.local_shadow + origin + copy.to}) {
            std::memcpy(to, next, copy.bytes);
            next += copy.bytes;
        }
}

// ---- frames: what an activation of a function that calls itself has for itself

// One lane's part of all that a function keeps in a place of its own, moved to or from the stack by `move`.
template <class Move>
void each_part(const Warp& warp, int lane, const Frame& frame, Move move) {
    for (const Frame::Register& r : frame.registers)
        if (r.bytes) move(warp.rows + r.row + lane * r.bytes, u64(r.bytes));
    for (const Frame::Part& part : frame.parameters) {
        const u64 at = u64(lane) * warp.local_bytes + part.offset;
        move(warp.local + at, part.bytes);
        move(warp.local_shadow + at, part.bytes);
    }
}

void push_predicates(const Warp& warp, int lane, const Frame& frame, std::vector<u8>& saved) {
    for (const Frame::Register& r : frame.registers)
        if (!r.bytes) saved.push_back(warp.predicate(r.row) >> lane & 1);
}

void pop_predicates(const Warp& warp, int lane, const Frame& frame, std::vector<u8>& saved) {
    for (auto r = frame.registers.rbegin(); r != frame.registers.rend(); ++r) {
        if (r->bytes) continue;
        warp.set_predicate(r->row, Mask(1) << lane, saved.back() ? ALL : 0);
        saved.pop_back();
    }
}

void check_depth(Warp& warp, int lane, const CallSite& site, const Frame& frame) {
    Stack& stack = warp.stacks[lane];
    stack.taken += align_up(frame.variable_bytes, RETURN_BYTES) + RETURN_BYTES;
    if (stack.taken <= warp.launch->stack_bytes) return;
    Block& block = *warp.block;
    block.stop_at(block.at(
        warp, warp.here, lane, FindingKind::crash,
        "stack overflow: " + demangled(site.callee) + ", " + plural(stack.callers.size() + 1, "call") +
            " deep, needs more than the " + std::to_string(warp.launch->stack_bytes) +
            " bytes of stack that a thread has; cudaDeviceSetLimit(cudaLimitStackSize, ...) gives more"));
}

// The callee may be active already: its registers and parameters are put aside, its variables are new ones.
void push_frame(Warp& warp, int lane, const CallSite& site) {
    const Frame& frame = warp.block->program->frames[size_t(site.frame)];
    check_depth(warp, lane, site, frame);
    Stack& stack = warp.stacks[lane];
    each_part(warp, lane, frame, [&](const u8* from, u64 bytes) {
        stack.saved.insert(stack.saved.end(), from, from + bytes);
    });
    push_predicates(warp, lane, frame, stack.saved);
    for (const Frame::Part& part : frame.parameters)
        std::memset(warp.local_shadow + u64(lane) * warp.local_bytes + part.offset, 0, part.bytes);
    if (frame.base_row >= 0) warp.row<u64>(frame.base_row)[lane] = warp.local_bytes + stack.bytes.size();
    stack.bytes.resize(stack.bytes.size() + frame.variable_bytes);
    stack.shadow.resize(stack.bytes.size());
}

void pop_frame(Warp& warp, int lane, const Frame& frame) {
    Stack& stack = warp.stacks[lane];
    stack.taken -= align_up(frame.variable_bytes, RETURN_BYTES) + RETURN_BYTES;
    stack.bytes.resize(stack.bytes.size() - frame.variable_bytes);
    stack.shadow.resize(stack.bytes.size());
    pop_predicates(warp, lane, frame, stack.saved);
    const u8* from = stack.saved.data() + stack.saved.size() - frame.saved_bytes;
    each_part(warp, lane, frame, [&](u8* to, u64 bytes) {
        std::memcpy(to, from, bytes);
        from += bytes;
    });
    stack.saved.resize(stack.saved.size() - frame.saved_bytes);
}

// ---- instructions

void enter(Warp& warp, Mask mask, u32 index) {
    const CallSite& site = warp.block->program->calls[index];
    each_lane(mask, [&](int l) {
        if (site.frame < 0)
            hand_over(warp, l, site.arguments);
        else
            hand_over(warp, l, site.arguments, [&] { push_frame(warp, l, site); });
        warp.stacks[l].callers.push_back({warp.here, index});
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
            warp, warp.here, l, FindingKind::crash,
            pointer[l] ? "calls through a pointer that holds no function of these parameters"
                       : "calls through a null pointer"));
    });
}

// Back to the caller; from the kernel itself, out.
void back(Warp& warp, const Instruction&, Mask mask) {
    Mask leaving = 0;
    each_lane(mask, [&](int l) {
        auto& callers = warp.stacks[l].callers;
        if (callers.empty()) {
            leaving |= Mask(1) << l;
            warp.pc[l] = warp.here;
            return;
        }
        const Caller caller = callers.back();
        const CallSite& site = warp.block->program->calls[caller.site];
        callers.pop_back();
        if (site.frame < 0)
            hand_over(warp, l, site.results);
        else
            hand_over(
                warp, l, site.results, [&] { pop_frame(warp, l, warp.block->program->frames[size_t(site.frame)]); });
        warp.pc[l] = caller.pc + 1;
    });
    if (leaving) warp.block->leave(warp, leaving);
}

}  // namespace

void call_entries(Table& t) {
    t.add("call{,.uni}", {call, {}}, lower_call, Flow::leave);
    t.add("call.indirect", {call_indirect, {}}, lower_nothing, Flow::leave);
    t.add("ret{,.uni}", {back, {}}, lower_nothing, Flow::leave);
}

}  // namespace sim
