// move: mov, packing and unpacking of vectors, cvta, and the resizing that the
// decoder inserts
//
// A register wider or narrower than the instruction's type is legal in PTX for
// ld, st, mov and cvt; the decoder copies such an operand through a row of the
// right width with `resize`.
#include <chrono>

#include "block.h"
#include "decode.h"
#include "operation.h"

namespace sim {

namespace {

template <class T>
T copy(T a) {
    return a;
}
template <class D, class S>
D resize(S a) {
    return D(a);
}

// mov.b64 d, {a, b}: the first element is the lowest
template <class D, class S, int count>
void pack(Warp& warp, const Instruction& in, Mask mask) {
    D* d = warp.row<D>(in.operand[0]);
    each_lane(mask, [&](int l) {
        D value = 0;
        for (int i = 0; i < count; ++i) value |= D(warp.row<const S>(in.operand[1 + i])[l]) << (i * 8 * sizeof(S));
        d[l] = value;
    });
}

template <class D, class S, int count>
void unpack(Warp& warp, const Instruction& in, Mask mask) {
    const S* s = warp.row<const S>(in.operand[count]);
    each_lane(mask, [&](int l) {
        const S value = s[l];
        for (int i = 0; i < count; ++i) warp.row<D>(in.operand[i])[l] = D(value >> (i * 8 * sizeof(D)));
    });
}

template <class Wide, class Narrow, int count>
void vector_entries(Table& t, const std::string& type) {
    Signature packing{count + 1, {shape_of<Wide>()}}, unpacking{count + 1, {}};
    for (int i = 0; i < count; ++i) packing.shape[i + 1] = unpacking.shape[i] = shape_of<Narrow>();
    unpacking.shape[count] = shape_of<Wide>();
    t.add("mov." + type + ".pack" + std::to_string(count), {pack<Wide, Narrow, count>, packing}, lower_vector_move);
    t.add(
        "mov." + type + ".unpack" + std::to_string(count), {unpack<Narrow, Wide, count>, unpacking}, lower_vector_move);
}

template <class D, class S>
void resize_row(Table& t, const std::string& d, const std::string& s) {
    t.add("resize." + d + "." + s, lanewise<resize<D, S>>());
}

template <class S>
void resize_from(Table& t, const std::string& s) {
    resize_row<u8, S>(t, "b8", s), resize_row<u16, S>(t, "b16", s);
    resize_row<u32, S>(t, "b32", s), resize_row<u64, S>(t, "b64", s);
}

// Addresses of the spaces inside generic address space: memory.h
template <s64 base, bool to_generic>
u64 convert_address(u64 address) {
    return to_generic ? address + u64(base) : address - u64(base);
}
void read_clock(Warp& warp, const Instruction& in, Mask mask) {
    u64* d = warp.row<u64>(in.operand[0]);
    const u64 now = in.option ? u64(std::chrono::steady_clock::now().time_since_epoch().count()) : warp.executed * 4;
    each_lane(mask, [&](int l) { d[l] = now; });
}

template <u64 base, u64 size>
void is_in_space(Warp& warp, const Instruction& in, Mask mask) {
    const u64* a = warp.row<const u64>(in.operand[1]);
    Mask value = 0;
    each_lane(mask, [&](int l) { value |= Mask(a[l] - base < size) << l; });
    warp.set_predicate(in.operand[0], mask, value);
}

void is_global(Warp& warp, const Instruction& in, Mask mask) {
    const u64* a = warp.row<const u64>(in.operand[1]);
    Mask value = 0;
    each_lane(mask, [&](int l) { value |= Mask(a[l] >= GLOBAL_ORIGIN) << l; });
    warp.set_predicate(in.operand[0], mask, value);
}

}  // namespace

void move_entries(Table& t) {
    t.add("mov.{b16,u16,s16,f16,bf16}", lanewise<copy<u16>>());
    t.add("mov.{b32,u32,s32,f16x2}", lanewise<copy<u32>>());
    t.add("mov.f32", lanewise<copy<f32>>());
    t.add("mov.{b64,u64,s64}", lanewise<copy<u64>>());
    t.add("mov.f64", lanewise<copy<f64>>());
    t.add("mov.b128", lanewise_cold<copy<u128>>());
    vector_entries<u16, u8, 2>(t, "b16");
    vector_entries<u32, u16, 2>(t, "{b32,u32,s32,f32}");
    vector_entries<u32, u8, 4>(t, "{b32,u32,s32}");
    vector_entries<u64, u32, 2>(t, "{b64,u64,s64,f64}");
    vector_entries<u64, u16, 4>(t, "{b64,u64,s64}");
    vector_entries<u128, u64, 2>(t, "b128");
    vector_entries<u128, u32, 4>(t, "b128");
    resize_from<u8>(t, "b8"), resize_from<u16>(t, "b16"), resize_from<u32>(t, "b32"), resize_from<u64>(t, "b64");
    resize_from<s8>(t, "s8"), resize_from<s16>(t, "s16"), resize_from<s32>(t, "s32");
    t.add("cvta{,.to}.{global,const,param}.u64", lanewise<copy<u64>>());
    t.add("cvta.shared{,::cta,::cluster}.u64", lanewise<convert_address<SHARED_ORIGIN, true>>());
    t.add("cvta.to.shared{,::cta,::cluster}.u64", lanewise<convert_address<SHARED_ORIGIN, false>>());
    t.add("cvta.local.u64", lanewise<convert_address<LOCAL_ORIGIN, true>>());
    t.add("cvta.to.local.u64", lanewise<convert_address<LOCAL_ORIGIN, false>>());
    const Signature question{2, {PREDICATE, shape_of<u64>()}};
    t.add("isspacep.shared{,::cta,::cluster}", {is_in_space<SHARED_ORIGIN, SPACE_SIZE>, question});
    t.add("isspacep.local", {is_in_space<LOCAL_ORIGIN, SPACE_SIZE>, question});
    t.add("isspacep.global", {is_global, question});
    t.add("clock.cycles", {read_clock, {1, {shape_of<u64>()}}}, lower_positional, Flow::next, 0);
    t.add("clock.time", {read_clock, {1, {shape_of<u64>()}}}, lower_positional, Flow::next, 1);
}

}  // namespace sim
