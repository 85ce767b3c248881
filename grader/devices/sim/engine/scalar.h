// scalar: the values that registers hold, and the conversions between them that
// round exactly once
//
// Every conversion here is written with integers and IEEE single precision
// only, so that it gives the same bits on every host and vectorises without
// intrinsics.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace sim {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;
__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 s128;

struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};
template <class Half>
struct pair {
    Half low, high;
};
using f16x2 = pair<f16>;
using bf16x2 = pair<bf16>;

template <class To, class From>
inline To bit_cast(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

constexpr u32 CANONICAL_NAN = 0x7fffffff;  // PTX ISA 9.7.3: the NaN that single
                                           // precision instructions return
constexpr u16 CANONICAL_NAN16 = 0x7fff;

// ---- denormals as zeros of their sign, which .ftz asks for

inline f32 flush(f32 a) {
    const u32 bits = bit_cast<u32>(a);
    return bit_cast<f32>(bits & 0x7f800000u ? bits : bits & 0x80000000u);
}
inline f16 flush(f16 a) {
    return {u16(a.bits & 0x7c00 ? a.bits : a.bits & 0x8000)};
}

// ---- half and bfloat16 to single precision: always exact

inline f32 widen(f16 half) {
    // Moved to single precision's place, the exponent is 112 too small; one
    // multiplication repairs denormals too.
    const f32 magnitude = bit_cast<f32>(u32(half.bits & 0x7fff) << 13) * 0x1p112f;
    const u32 special = (half.bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
    return bit_cast<f32>(bit_cast<u32>(magnitude) | special | u32(half.bits & 0x8000) << 16);
}

inline f32 widen(bf16 half) {
    return bit_cast<f32>(u32(half.bits) << 16);
}
inline f32 widen(f32 value) {
    return value;
}
inline f64 widen(f64 value) {
    return value;
}

// ---- single precision to half and bfloat16, to nearest even

template <class Half>
Half narrow(f32 value);

template <>
inline f16 narrow<f16>(f32 value) {
    const u32 sign = bit_cast<u32>(value) >> 16 & 0x8000;
    const u32 magnitude = bit_cast<u32>(value) & 0x7fffffff;
    const u32 normal = (magnitude + 0xc8000fffu + (magnitude >> 13 & 1)) >> 13;  // 0xc8000000 is -112 << 23
    // Adding 0.5 puts the last bit of a half's denormal into the last place of
    // the sum.
    const u32 denormal = bit_cast<u32>(bit_cast<f32>(magnitude) + 0.5f) - 0x3f000000u;
    u32 half = magnitude < 0x38800000u ? denormal : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;
    half |= sign;
    half = magnitude > 0x7f800000u ? u32(CANONICAL_NAN16) : half;
    return {u16(half)};
}

template <>
inline bf16 narrow<bf16>(f32 value) {
    const u32 bits = bit_cast<u32>(value);
    const u32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return {u16((bits & 0x7fffffff) > 0x7f800000u ? u32(CANONICAL_NAN16) : rounded)};
}

template <>
inline f32 narrow<f32>(f32 value) {
    return value;
}

// ---- sums rounded to odd: a second rounding to fewer bits then gives the
// once-rounded result (Boldo, Melquiond 2008)

inline f32 sum_to_odd(f32 a, f32 b) {
    const f32 sum = a + b;
    const f32 part = sum - a;
    const f32 error = (a - (sum - part)) + (b - part);
    u32 bits = bit_cast<u32>(sum);
    const bool inexact = error > 0 || error < 0;
    const u32 step = (error > 0) == (sum > 0) ? 1u : ~0u;
    bits += inexact && !(bits & 1) ? step : 0u;
    return bit_cast<f32>(bits);
}

inline f64 sum_to_odd(f64 a, f64 b) {
    const f64 sum = a + b;
    const f64 part = sum - a;
    const f64 error = (a - (sum - part)) + (b - part);
    u64 bits = bit_cast<u64>(sum);
    const bool inexact = error > 0 || error < 0;
    const u64 step = (error > 0) == (sum > 0) ? 1u : ~u64(0);
    bits += inexact && !(bits & 1) ? step : 0u;
    return bit_cast<f64>(bits);
}

// Double to single precision rounded to odd: the value is exact or its last bit
// is one.
inline f32 single_to_odd(f64 value) {
    const f32 nearest = f32(value);
    u32 bits = bit_cast<u32>(nearest);
    const f64 error = value - f64(nearest);
    const bool inexact = error > 0 || error < 0;
    if (std::isinf(nearest) && !std::isinf(value)) return std::copysign(std::numeric_limits<f32>::max(), nearest);
    if (inexact && !(bits & 1)) bits += nearest == 0 || (error > 0) == (nearest > 0) ? 1u : ~0u;
    f32 odd = bit_cast<f32>(bits);
    if (nearest == 0 && inexact) odd = f32(std::copysign(bit_cast<f32>(1u), value));
    return odd;
}

template <class Half>
inline Half narrow_double(f64 value) {
    return narrow<Half>(single_to_odd(value));
}

// ---- fused multiply-add with one rounding

inline f32 fused(f32 a, f32 b, f32 c) {
    return __builtin_fmaf(a, b, c);
}
inline f64 fused(f64 a, f64 b, f64 c) {
    return __builtin_fma(a, b, c);
}
inline f16 fused(f16 a, f16 b, f16 c) {
    // The product of two halves is exact in single precision, which has two bits
    // more than twice a half's.
    return narrow<f16>(sum_to_odd(widen(a) * widen(b), widen(c)));
}
inline bf16 fused(bf16 a, bf16 b, bf16 c) {
    return narrow_double<bf16>(sum_to_odd(f64(widen(a)) * f64(widen(b)), f64(widen(c))));
}

// ---- arithmetic as functions, in whatever rounding mode the host is

namespace ieee {

template <class T>
T add(T a, T b) {
    return a + b;
}
template <class T>
T sub(T a, T b) {
    return a - b;
}
template <class T>
T mul(T a, T b) {
    return a * b;
}
template <class T>
T fma(T a, T b, T c) {
    return fused(a, b, c);
}
template <class T>
T divide(T a, T b) {
    return a / b;
}
template <class T>
T square_root(T a) {
    return std::sqrt(a);
}
template <class T>
T reciprocal(T a) {
    return T(1) / a;
}

}  // namespace ieee

}  // namespace sim
