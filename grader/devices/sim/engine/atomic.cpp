// atomic: atom and red, one lane after the other
#include <mutex>

#include "atomic_update.h"
#include "decode.h"
#include "launch.h"
#include "operation.h"
#include "check_access.h"

namespace sim {

namespace {

template <class T>
T add(T old, T b) {
    return T(old + b);
}
// Vectors flush denormals, a single float does not.
f32 add_flushed(f32 old, f32 b) {
    return flush(flush(old) + flush(b));
}
template <class H>
pair<H> add_pair(pair<H> old, pair<H> b) {
    return {narrow<H>(widen(old.low) + widen(b.low)), narrow<H>(widen(old.high) + widen(b.high))};
}
template <class H>
H add_half(H old, H b) {
    return narrow<H>(widen(old) + widen(b));
}
template <class T>
T minimum(T old, T b) {
    return b < old ? b : old;
}
template <class T>
T maximum(T old, T b) {
    return b > old ? b : old;
}
template <class T>
T exchange(T, T b) {
    return b;
}

// Float atomics round, so that their order shows; of others it shows in the old value, where that is asked for.
template <class T>
void note_order(const Warp& warp, const Instruction& in) {
    if constexpr (!std::is_integral_v<T>)
        warp.launch->note_order(warp.here, true);
    else if (in.entry->lower != lower_reduction)
        warp.launch->note_order(warp.here, false);
}

template <class T, T (*F)(T, T)>
void combine(Warp& warp, const Instruction& in, Mask mask) {
    u8* at[LANES];
    check_each_lane(warp, in, mask, sizeof(T), Access::atomic, at);
    note_order<T>(warp, in);
    T* d = warp.row<T>(in.operand[0]);
    const T* b = warp.row<const T>(in.operand[1]);
    each_lane(mask, [&](int l) { d[l] = update<T, F>(at[l], b[l]); });
}

// Vectors of halves and floats: each element is atomic by itself. red has no results.
template <class T, T (*F)(T, T), int count, bool results>
void combine_vector(Warp& warp, const Instruction& in, Mask mask) {
    u8* at[LANES];
    check_each_lane(warp, in, mask, sizeof(T) * count, Access::atomic, at);
    note_order<T>(warp, in);
    constexpr int first = results ? count : 0;
    each_lane(mask, [&](int l) {
        for (int i = 0; i < count; ++i) {
            const T b = warp.row<const T>(in.operand[first + i])[l];
            const T old = update<T, F>(at[l] + i * sizeof(T), b);
            if (results) warp.row<T>(in.operand[i])[l] = old;
        }
    });
}

template <class T>
void compare_and_swap(Warp& warp, const Instruction& in, Mask mask) {
    u8* at[LANES];
    check_each_lane(warp, in, mask, sizeof(T), Access::atomic, at);
    note_order<T>(warp, in);
    T* d = warp.row<T>(in.operand[0]);
    const T *expected = warp.row<const T>(in.operand[1]), *desired = warp.row<const T>(in.operand[2]);
    each_lane(mask, [&](int l) {
        T old = expected[l];
        const T wanted = desired[l];
        __atomic_compare_exchange_n(
            reinterpret_cast<T*>(at[l]), &old, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        d[l] = old;
    });
}

// exch and cas of 16 bytes, which not every host has an atomic for: one at a time in all blocks.
template <bool compares>
void swap_wide(Warp& warp, const Instruction& in, Mask mask) {
    static std::mutex one_at_a_time;
    u8* at[LANES];
    check_each_lane(warp, in, mask, sizeof(u128), Access::atomic, at);
    warp.launch->note_order(warp.here, false);
    u128* d = warp.row<u128>(in.operand[0]);
    const u128 *expected = warp.row<const u128>(in.operand[1]),
               *desired = warp.row<const u128>(in.operand[1 + compares]);
    each_lane(mask, [&](int l) {
        const std::lock_guard<std::mutex> guard(one_at_a_time);
        u128 old;
        std::memcpy(&old, at[l], sizeof old);
        if (!compares || old == expected[l]) std::memcpy(at[l], desired + l, sizeof old);
        d[l] = old;
    });
}

template <class T, T (*F)(T, T)>
void both(Table& t, const std::string& form) {
    const Operation operation{combine<T, F>, {2, {shape_of<T>(), shape_of<T>()}}};
    t.add("atom." + form, operation, lower_atomic);
    t.add("red." + form, operation, lower_reduction);
}

// Both orders of the words are in use. red of eight elements has no atom: it would have too many operands.
template <class T, T (*F)(T, T), int count>
void vector_row(Table& t, const std::string& type) {
    const std::string vector = "v" + std::to_string(count) + "." + type;
    const std::string form = "{add." + vector + "," + vector + ".add}";
    Signature one{count, {}}, two{2 * count, {}};
    for (int i = 0; i < 2 * count && i < OPERANDS; ++i) one.shape[i] = two.shape[i] = shape_of<T>();
    t.add("red." + form, {combine_vector<T, F, count, false>, one}, lower_store);
    if constexpr (2 * count <= OPERANDS)
        t.add("atom." + form, {combine_vector<T, F, count, true>, two}, lower_vector_atomic);
}
template <class H>
void vector_half_entries(Table& t, const std::string& type) {
    vector_row<H, add_half<H>, 2>(t, type);
    vector_row<H, add_half<H>, 4>(t, type);
    vector_row<H, add_half<H>, 8>(t, type);
    vector_row<pair<H>, add_pair<H>, 2>(t, type + "x2");
    vector_row<pair<H>, add_pair<H>, 4>(t, type + "x2");
}

template <class T>
void logic(Table& t, const std::string& type) {
    both<T, bit_and<T>>(t, "and." + type);
    both<T, bit_or<T>>(t, "or." + type);
    both<T, bit_xor<T>>(t, "xor." + type);
    both<T, exchange<T>>(t, "exch." + type);
}

template <class T>
void order(Table& t, const std::string& type) {
    both<T, minimum<T>>(t, "min." + type);
    both<T, maximum<T>>(t, "max." + type);
}

template <class T>
void cas(Table& t, const std::string& type) {
    const Shape shape = shape_of<T>();
    t.add("atom.cas." + type, {compare_and_swap<T>, {3, {shape, shape, shape}}}, lower_atomic);
}

}  // namespace

void atomic_entries(Table& t) {
    both<u32, add<u32>>(t, "add.{u32,s32}");
    both<u64, add<u64>>(t, "add.{u64,s64}");
    both<f32, add<f32>>(t, "add{,.ftz}.f32");
    both<f64, add<f64>>(t, "add.f64");
    both<f16, add_half<f16>>(t, "add.f16");
    both<bf16, add_half<bf16>>(t, "add.bf16");
    both<f16x2, add_pair<f16>>(t, "add.f16x2");
    both<bf16x2, add_pair<bf16>>(t, "add.bf16x2");
    vector_row<f32, add_flushed, 2>(t, "f32");
    vector_row<f32, add_flushed, 4>(t, "f32");
    vector_half_entries<f16>(t, "f16");
    vector_half_entries<bf16>(t, "bf16");
    order<u32>(t, "u32"), order<s32>(t, "s32"), order<u64>(t, "u64"), order<s64>(t, "s64");
    logic<u32>(t, "b32"), logic<u64>(t, "b64");
    cas<u16>(t, "b16"), cas<u32>(t, "{b32,u32,s32}"), cas<u64>(t, "{b64,u64,s64}");
    const Shape wide = shape_of<u128>();
    t.add("atom.exch.b128", {swap_wide<false>, {2, {wide, wide}}}, lower_atomic);
    t.add("atom.cas.b128", {swap_wide<true>, {3, {wide, wide, wide}}}, lower_atomic);
    both<u32, increment>(t, "inc.u32");
    both<u32, decrement>(t, "dec.u32");
}

}  // namespace sim
