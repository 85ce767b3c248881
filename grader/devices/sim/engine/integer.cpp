// integer: plain integer arithmetic and logic of 16, 32 and 64 bits
#include "operation.h"

namespace sim {

namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// Wrapping arithmetic goes through unsigned values: signed overflow is
// undefined in C++, defined in PTX.
template <class T>
T add(T a, T b) {
    return T(Unsigned<T>(a) + Unsigned<T>(b));
}
template <class T>
T sub(T a, T b) {
    return T(Unsigned<T>(a) - Unsigned<T>(b));
}
template <class T>
T mul_lo(T a, T b) {
    return T(u64(a) * u64(b));
}
template <class T>
T mad_lo(T a, T b, T c) {
    return T(u64(a) * u64(b) + u64(c));
}
template <class T>
T neg(T a) {
    return T(0 - Unsigned<T>(a));
}
template <class T>
T absolute(T a) {
    return a < 0 ? neg(a) : a;
}
template <class T>
T minimum(T a, T b) {
    return a < b ? a : b;
}
template <class T>
T maximum(T a, T b) {
    return a > b ? a : b;
}
template <class T>
T minimum_relu(T a, T b) {
    return maximum<T>(minimum(a, b), 0);
}
template <class T>
T maximum_relu(T a, T b) {
    return maximum<T>(maximum(a, b), 0);
}
s32 add_sat(s32 a, s32 b) {
    const s64 sum = s64(a) + b;
    return s32(minimum<s64>(maximum<s64>(sum, INT32_MIN), INT32_MAX));
}
s32 sub_sat(s32 a, s32 b) {
    const s64 difference = s64(a) - b;
    return s32(minimum<s64>(maximum<s64>(difference, INT32_MIN), INT32_MAX));
}

template <class T>
T bit_and(T a, T b) {
    return a & b;
}
template <class T>
T bit_or(T a, T b) {
    return a | b;
}
template <class T>
T bit_xor(T a, T b) {
    return a ^ b;
}
template <class T>
T bit_not(T a) {
    return T(~a);
}
template <class T>
T logical_not(T a) {
    return a == 0;
}

// Shift amounts are clamped to the width.
template <class T>
T shift_left(T a, u32 n) {
    return n >= sizeof(T) * 8 ? T(0) : T(a << (n & (sizeof(T) * 8 - 1)));
}
template <class T>
T shift_right(T a, u32 n) {
    constexpr u32 last = sizeof(T) * 8 - 1;
    if (std::is_signed_v<T>) return T(a >> (n > last ? last : n));
    return n > last ? T(0) : T(a >> (n & last));
}

template <class T>
void arithmetic(Table& t, std::string_view type) {
    t.add({"add.", type}, lanewise<add<T>>());
    t.add({"sub.", type}, lanewise<sub<T>>());
    t.add({"mul.lo.", type}, lanewise<mul_lo<T>>());
    t.add({"mad.lo.", type}, lanewise<mad_lo<T>>());
    t.add({"min.", type}, lanewise<minimum<T>>());
    t.add({"max.", type}, lanewise<maximum<T>>());
    t.add({"shr.", type}, lanewise<shift_right<T>>());
}

template <class T>
void signed_arithmetic(Table& t, std::string_view type) {
    t.add({"neg.", type}, lanewise<neg<T>>());
    t.add({"abs.", type}, lanewise<absolute<T>>());
}

template <class T>
void logic(Table& t, std::string_view type) {
    t.add({"and.", type}, lanewise<bit_and<T>>());
    t.add({"or.", type}, lanewise<bit_or<T>>());
    t.add({"xor.", type}, lanewise<bit_xor<T>>());
    t.add({"not.", type}, lanewise<bit_not<T>>());
    t.add({"cnot.", type}, lanewise_cold<logical_not<T>>());
    t.add({"shl.", type}, lanewise<shift_left<T>>());
    t.add({"shr.", type}, lanewise<shift_right<T>>());
}

template <auto F>
u32 halves(u32 a, u32 b) {
    return u32(u16(F(a & 0xffff, b & 0xffff))) | u32(u16(F(a >> 16, b >> 16))) << 16;
}
u32 add_half(u32 a, u32 b) {
    return a + b;
}
u32 min_u(u32 a, u32 b) {
    return minimum<u16>(u16(a), u16(b));
}
u32 max_u(u32 a, u32 b) {
    return maximum<u16>(u16(a), u16(b));
}
u32 min_s(u32 a, u32 b) {
    return u32(minimum<s16>(s16(a), s16(b)));
}
u32 max_s(u32 a, u32 b) {
    return u32(maximum<s16>(s16(a), s16(b)));
}

}  // namespace

void integer_entries(Table& t) {
    arithmetic<u16>(t, "u16");
    arithmetic<s16>(t, "s16");
    arithmetic<u32>(t, "u32");
    arithmetic<s32>(t, "s32");
    arithmetic<u64>(t, "u64");
    arithmetic<s64>(t, "s64");
    signed_arithmetic<s16>(t, "s16");
    signed_arithmetic<s32>(t, "s32");
    signed_arithmetic<s64>(t, "s64");
    logic<u16>(t, "b16");
    logic<u32>(t, "b32");
    logic<u64>(t, "b64");
    t.add("add.sat.s32", lanewise_cold<add_sat>());
    t.add("sub.sat.s32", lanewise_cold<sub_sat>());
    t.add("min.relu.s32", lanewise_cold<minimum_relu<s32>>());
    t.add("max.relu.s32", lanewise_cold<maximum_relu<s32>>());
    t.add("add.{u16x2,s16x2}", lanewise_cold<halves<add_half>>());
    t.add("min.u16x2", lanewise_cold<halves<min_u>>());
    t.add("max.u16x2", lanewise_cold<halves<max_u>>());
    t.add("min.s16x2", lanewise_cold<halves<min_s>>());
    t.add("max.s16x2", lanewise_cold<halves<max_s>>());
}

}  // namespace sim
