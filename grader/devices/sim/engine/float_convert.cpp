// float_convert: cvt from floating point to integers and between floating point
// types
//
// To an integer: the value is clamped to the integer's range.
#include "operation.h"

namespace sim {

namespace {

enum class Round { nearest, zero, down, up };

template <Round round, class F>
F integral(F a) {
    if constexpr (round == Round::nearest) return std::nearbyint(a);
    if constexpr (round == Round::zero) return std::trunc(a);
    if constexpr (round == Round::down) return std::floor(a);
    return std::ceil(a);
}

template <class D, Round round, class S>
D to_integer(S a) {
    const auto x = integral<round>(widen(a));
    using F = decltype(x + x);
    // The limits as floating point: the upper one is the first value that does
    // not fit.
    const F low = F(std::numeric_limits<D>::min());
    const F beyond = F(std::numeric_limits<D>::max() / 2 + 1) * 2;
    // Not what the ISA says, but what the card does: a NaN is zero only where both
    // sides have at most 32 bits.
    constexpr bool wide = sizeof(D) == 8 || sizeof(S) == 8;
    if (x != x) return wide ? D(u64(1) << (sizeof(D) * 8 - 1)) : D(0);
    if (x <= low) return std::numeric_limits<D>::min();
    if (x >= beyond) return std::numeric_limits<D>::max();
    return D(x);
}

template <class D, Round round>
D to_integer_ftz(f32 a) {
    return to_integer<D, round, f32>(flush(a));
}

template <class F, Round round>
F to_integral(F a) {
    return narrow<F>(integral<round>(widen(a)));
}
template <Round round>
f32 to_integral_ftz(f32 a) {
    return integral<round>(flush(a));
}
template <>
f64 to_integral<f64, Round::nearest>(f64 a) {
    return std::nearbyint(a);
}
template <>
f64 to_integral<f64, Round::zero>(f64 a) {
    return std::trunc(a);
}
template <>
f64 to_integral<f64, Round::down>(f64 a) {
    return std::floor(a);
}
template <>
f64 to_integral<f64, Round::up>(f64 a) {
    return std::ceil(a);
}

// ---- between floating point types

template <class D, class S>
D exact(S a) {
    return D(widen(a));
}
template <class H>
f32 exact_ftz(H a) {
    return flush(widen(a));
}
f32 from_double(f64 a) {
    return f32(a);
}
template <class H>
H from_single(f32 a) {
    return narrow<H>(a);
}
template <class H>
H from_single_ftz(f32 a) {
    return narrow<H>(flush(a));
}
template <class H>
H from_double_to_half(f64 a) {
    return narrow_double<H>(a);
}
// Through the nearest one, moved a step back where it lies on the wrong side.
template <class H, Round round>
H directed(f32 a) {
    H half = narrow<H>(a);
    const f32 back = widen(half);
    if (a != a || back == a) return half;
    const bool above = back > a;
    const bool lower = round == Round::down || (round == Round::zero && a > 0);
    if (above == lower) {
        if ((half.bits & 0x7fff) == 0)
            half.bits = lower ? 0x8001 : 0x0001;
        else
            half.bits = u16(half.bits + ((half.bits & 0x8000 ? lower : !lower) ? 1 : -1));
    }
    return half;
}
template <class H>
H rectified(f32 a) {
    return narrow<H>(a > 0 || a != a ? a : 0.0f);
}
template <class H>
H saturated_half(f32 a) {
    return narrow<H>(a > 0 ? (a < 1 ? a : 1.0f) : 0.0f);
}
f32 saturated(f32 a) {
    return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f;
}
f32 saturated_ftz(f32 a) {
    return saturated(flush(a));
}
f64 double_from_flushed(f32 a) {
    return f64(flush(a));
}
f64 saturated_double(f64 a) {
    return a > 0 ? (a < 1 ? a : 1.0) : 0.0;
}
f32 ftz(f32 a) {
    return flush(a);
}
bf16 half_to_bfloat(f16 a) {
    return narrow<bf16>(widen(a));
}
f16 bfloat_to_half(bf16 a) {
    return narrow<f16>(widen(a));
}

// cvt.f16x2.f32 d, a, b: a becomes the upper half
template <auto F, class H>
struct Pack;
template <auto F, class H>
struct Pack<F, H (*)(f32)> {
    static pair<H> run(f32 a, f32 b) { return {F(b), F(a)}; }
};
template <auto F>
Operation packed() {
    return lanewise<Pack<F, decltype(F)>::run>();
}

// tf32 keeps 10 bits of fraction; rna rounds halves away from zero.
u32 tf32_away(f32 a) {
    const u32 bits = bit_cast<u32>(a);
    if ((bits & 0x7f800000u) == 0x7f800000u) return a != a ? CANONICAL_NAN : bits;
    return (bits + 0x1000u) & ~0x1fffu;
}
u32 tf32_nearest(f32 a) {
    const u32 bits = bit_cast<u32>(a);
    if ((bits & 0x7f800000u) == 0x7f800000u) return a != a ? CANONICAL_NAN : bits;
    return (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
}
u32 tf32_zero(f32 a) {
    return a != a ? CANONICAL_NAN : bit_cast<u32>(a) & ~0x1fffu;
}
template <u32 (*F)(f32)>
u32 tf32_relu(f32 a) {
    return F(a > 0 || a != a ? a : 0.0f);
}

// ---- entries

template <class D, class S>
void rounded(Table& t, std::string_view d, std::string_view s) {
    t.add({"cvt.rni{,.sat}.", d, ".", s}, lanewise_cold<to_integer<D, Round::nearest, S>>());
    t.add({"cvt.rzi{,.sat}.", d, ".", s}, lanewise<to_integer<D, Round::zero, S>>());
    t.add({"cvt.rmi{,.sat}.", d, ".", s}, lanewise_cold<to_integer<D, Round::down, S>>());
    t.add({"cvt.rpi{,.sat}.", d, ".", s}, lanewise_cold<to_integer<D, Round::up, S>>());
}

template <class D>
void to(Table& t, std::string_view d) {
    rounded<D, f32>(t, d, "f32");
    rounded<D, f64>(t, d, "f64");
    rounded<D, f16>(t, d, "f16");
    rounded<D, bf16>(t, d, "bf16");
    t.add({"cvt.rni.ftz{,.sat}.", d, ".f32"}, lanewise_cold<to_integer_ftz<D, Round::nearest>>());
    t.add({"cvt.rzi.ftz{,.sat}.", d, ".f32"}, lanewise_cold<to_integer_ftz<D, Round::zero>>());
    t.add({"cvt.rmi.ftz{,.sat}.", d, ".f32"}, lanewise_cold<to_integer_ftz<D, Round::down>>());
    t.add({"cvt.rpi.ftz{,.sat}.", d, ".f32"}, lanewise_cold<to_integer_ftz<D, Round::up>>());
}

template <class F>
void same(Table& t, std::string_view type) {
    t.add({"cvt.rni.", type, ".", type}, lanewise_cold<to_integral<F, Round::nearest>>());
    t.add({"cvt.rzi.", type, ".", type}, lanewise_cold<to_integral<F, Round::zero>>());
    t.add({"cvt.rmi.", type, ".", type}, lanewise_cold<to_integral<F, Round::down>>());
    t.add({"cvt.rpi.", type, ".", type}, lanewise_cold<to_integral<F, Round::up>>());
}

template <class H>
void half(Table& t, std::string_view h) {
    t.add({"cvt.f32.", h}, lanewise<exact<f32, H>>());
    t.add({"cvt.ftz.f32.", h}, lanewise_cold<exact_ftz<H>>());
    t.add({"cvt.f64.", h}, lanewise_cold<exact<f64, H>>());
    t.add({"cvt.rn.", h, ".f32"}, lanewise<from_single<H>>());
    t.add({"cvt.rn.ftz.", h, ".f32"}, lanewise_cold<from_single_ftz<H>>());
    t.add({"cvt.rz.", h, ".f32"}, lanewise_cold<directed<H, Round::zero>>());
    t.add({"cvt.rm.", h, ".f32"}, lanewise_cold<directed<H, Round::down>>());
    t.add({"cvt.rp.", h, ".f32"}, lanewise_cold<directed<H, Round::up>>());
    t.add({"cvt.rn.sat.", h, ".f32"}, lanewise_cold<saturated_half<H>>());
    t.add({"cvt.rn.relu.", h, ".f32"}, lanewise_cold<rectified<H>>());
    t.add({"cvt.rn.", h, ".f64"}, lanewise_cold<from_double_to_half<H>>());
    t.add({"cvt.rn.", h, "x2.f32"}, packed<from_single<H>>());
    t.add({"cvt.rz.", h, "x2.f32"}, packed<directed<H, Round::zero>>());
    t.add({"cvt.rn.relu.", h, "x2.f32"}, packed<rectified<H>>());
}

}  // namespace

void float_convert_entries(Table& t) {
    to<u8>(t, "u8"), to<s8>(t, "s8"), to<u16>(t, "u16"), to<s16>(t, "s16");
    to<u32>(t, "u32"), to<s32>(t, "s32"), to<u64>(t, "u64"), to<s64>(t, "s64");
    half<f16>(t, "f16");
    half<bf16>(t, "bf16");
    same<f16>(t, "f16"), same<bf16>(t, "bf16"), same<f32>(t, "f32"), same<f64>(t, "f64");
    t.add("cvt.f64.f32", lanewise<exact<f64, f32>>());
    t.add("cvt.ftz.f64.f32", lanewise_cold<double_from_flushed>());
    t.add("cvt.rn.f32.f64", lanewise<from_double>());
    t.add("cvt{.rn,}.bf16.f16", lanewise_cold<half_to_bfloat>());
    t.add("cvt.rn.f16.bf16", lanewise_cold<bfloat_to_half>());
    t.add("cvt.sat.f32.f32", lanewise_cold<saturated>());
    t.add("cvt.ftz.sat.f32.f32", lanewise_cold<saturated_ftz>());
    t.add("cvt.sat.f64.f64", lanewise_cold<saturated_double>());
    t.add("cvt.rni.ftz.f32.f32", lanewise_cold<to_integral_ftz<Round::nearest>>());
    t.add("cvt.rzi.ftz.f32.f32", lanewise_cold<to_integral_ftz<Round::zero>>());
    t.add("cvt.rmi.ftz.f32.f32", lanewise_cold<to_integral_ftz<Round::down>>());
    t.add("cvt.rpi.ftz.f32.f32", lanewise_cold<to_integral_ftz<Round::up>>());
    t.add("cvt.ftz.f32.f32", lanewise_cold<ftz>());
    t.add("cvt.rna.tf32.f32", lanewise<tf32_away>());
    t.add("cvt.rn.tf32.f32", lanewise_cold<tf32_nearest>());
    t.add("cvt.rz.tf32.f32", lanewise_cold<tf32_zero>());
    t.add("cvt.rn.relu.tf32.f32", lanewise_cold<tf32_relu<tf32_nearest>>());
    t.add("cvt.rz.relu.tf32.f32", lanewise_cold<tf32_relu<tf32_zero>>());
}

}  // namespace sim
