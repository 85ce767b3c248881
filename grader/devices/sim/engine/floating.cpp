// floating: single and double precision arithmetic, rounded to nearest even,
// and the approximations
//
// A multiplication followed by an addition is never fused here; fma rounds
// once. `.ftz` flushes denormal inputs and results to zero of the same sign,
// `.sat` clamps to [0, 1] with NaN to 0.
#include "operation.h"

namespace sim {

namespace {

template <class T>
T canonical(T value) {
    if constexpr (sizeof(T) == 4) return value == value ? value : bit_cast<f32>(CANONICAL_NAN);
    return value;
}

template <class T>
T reciprocal_root(T a) {
    return T(1 / std::sqrt(f64(a)));
}
// The gross approximations in double precision: the upper half of the result,
// denormals as zeros on both sides.
template <f64 (*F)(f64)>
f64 gross(f64 a) {
    constexpr f64 least = 0x1p-1022;
    const f64 result = F(std::fabs(a) < least ? std::copysign(0.0, a) : a);
    if (std::fabs(result) < least) return std::copysign(0.0, result);
    return result != result ? result : bit_cast<f64>(bit_cast<u64>(result) & ~u64(0xffffffff));
}
f32 exp2_approx(f32 a) {
    return std::exp2(a);
}
f32 log2_approx(f32 a) {
    return std::log2(a);
}
f32 sin_approx(f32 a) {
    return std::sin(a);
}
f32 cos_approx(f32 a) {
    return std::cos(a);
}
// The card multiplies by the divisor's reciprocal, which is zero for divisors
// beyond 2^126.
f32 divide_approx(f32 a, f32 b) {
    const bool vanishes = std::fabs(b) > 0x1p126f && !std::isinf(b);
    return vanishes ? a * std::copysign(0.0f, b) : a / b;
}
f32 tanh_approx(f32 a) {
    return std::tanh(a);
}

// Sign operations keep NaN bits as they are.
f32 negate32(f32 a) {
    return bit_cast<f32>(bit_cast<u32>(a) ^ 0x80000000u);
}
f64 negate64(f64 a) {
    return bit_cast<f64>(bit_cast<u64>(a) ^ u64(1) << 63);
}
f32 absolute32(f32 a) {
    return bit_cast<f32>(bit_cast<u32>(a) & 0x7fffffffu);
}
f64 absolute64(f64 a) {
    return bit_cast<f64>(bit_cast<u64>(a) & ~(u64(1) << 63));
}
// copysign.f32 d, a, b: the sign of a, the magnitude of b
u32 copy_sign32(u32 a, u32 b) {
    return (a & 0x80000000u) | (b & 0x7fffffffu);
}
u64 copy_sign64(u64 a, u64 b) {
    return (a & u64(1) << 63) | (b & ~(u64(1) << 63));
}

// -0 is less than +0; a NaN loses against a number; two NaNs give the canonical
// NaN.
template <class T>
T minimum(T a, T b) {
    const T smaller = a < b || (a == b && std::signbit(a)) ? a : b;
    return a != a ? canonical(b) : b != b ? a : smaller;
}
template <class T>
T maximum(T a, T b) {
    const T larger = a > b || (a == b && !std::signbit(a)) ? a : b;
    return a != a ? canonical(b) : b != b ? a : larger;
}
template <class T>
T minimum_nan(T a, T b) {
    return a != a || b != b ? canonical(std::numeric_limits<T>::quiet_NaN()) : minimum(a, b);
}
template <class T>
T maximum_nan(T a, T b) {
    return a != a || b != b ? canonical(std::numeric_limits<T>::quiet_NaN()) : maximum(a, b);
}
f32 minimum_xorsign(f32 a, f32 b) {
    const u32 sign = (bit_cast<u32>(a) ^ bit_cast<u32>(b)) & 0x80000000u;
    return bit_cast<f32>(bit_cast<u32>(minimum(absolute32(a), absolute32(b))) | sign);
}
f32 maximum_xorsign(f32 a, f32 b) {
    const u32 sign = (bit_cast<u32>(a) ^ bit_cast<u32>(b)) & 0x80000000u;
    return bit_cast<f32>(bit_cast<u32>(maximum(absolute32(a), absolute32(b))) | sign);
}

f32 clamp01(f32 a) {
    return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f;
}

template <auto F, class S>
struct Modified;
template <auto F, class D, class... S>
struct Modified<F, D (*)(S...)> {
    static D plain(S... s) { return canonical(F(s...)); }
    static D ftz(S... s) { return flush(F(flush(s)...)); }
    static D sat(S... s) { return clamp01(F(s...)); }
    static D ftz_sat(S... s) { return flush(clamp01(F(flush(s)...))); }
};
template <auto F>
using With = Modified<F, decltype(F)>;

// Single precision: [.rn][.ftz][.sat]
template <auto F>
void single(Table& t, std::string_view name, std::string_view rounding) {
    t.add({name, rounding, ".f32"}, lanewise<With<F>::plain>());
    t.add({name, rounding, ".ftz.f32"}, lanewise<With<F>::ftz>());
    t.add({name, rounding, ".sat.f32"}, lanewise_cold<With<F>::sat>());
    t.add({name, rounding, ".ftz.sat.f32"}, lanewise_cold<With<F>::ftz_sat>());
}

template <auto F>
void approximate(Table& t, std::string_view form) {
    t.add({form, ".f32"}, lanewise_cold<With<F>::plain>());
    t.add({form, ".ftz.f32"}, lanewise_cold<With<F>::ftz>());
}

void single_entries(Table& t) {
    single<ieee::add<f32>>(t, "add", "{,.rn}");
    single<ieee::sub<f32>>(t, "sub", "{,.rn}");
    single<ieee::mul<f32>>(t, "mul", "{,.rn}");
    single<ieee::fma<f32>>(t, "{fma,mad}", ".rn");
    single<ieee::divide<f32>>(t, "div", ".rn");
    approximate<ieee::square_root<f32>>(t, "sqrt.{rn,approx}");
    approximate<ieee::reciprocal<f32>>(t, "rcp.{rn,approx}");
    approximate<divide_approx>(t, "div.approx");
    approximate<ieee::divide<f32>>(t, "div.full");
    approximate<reciprocal_root<f32>>(t, "rsqrt.approx");
    approximate<exp2_approx>(t, "ex2.approx");
    approximate<log2_approx>(t, "lg2.approx");
    approximate<sin_approx>(t, "sin.approx");
    approximate<cos_approx>(t, "cos.approx");
    t.add("tanh.approx.f32", lanewise_cold<With<tanh_approx>::plain>());
    t.add("neg.f32", lanewise<negate32>());
    t.add("abs.f32", lanewise<absolute32>());
    t.add("neg.ftz.f32", lanewise_cold<With<negate32>::ftz>());
    t.add("abs.ftz.f32", lanewise_cold<With<absolute32>::ftz>());
    t.add("copysign.f32", lanewise<copy_sign32>());
    t.add("min.f32", lanewise<minimum<f32>>());
    t.add("max.f32", lanewise<maximum<f32>>());
    t.add("min.ftz.f32", lanewise<With<minimum<f32>>::ftz>());
    t.add("max.ftz.f32", lanewise<With<maximum<f32>>::ftz>());
    t.add("min.NaN.f32", lanewise<minimum_nan<f32>>());
    t.add("max.NaN.f32", lanewise<maximum_nan<f32>>());
    t.add("min.ftz.NaN.f32", lanewise_cold<With<minimum_nan<f32>>::ftz>());
    t.add("max.ftz.NaN.f32", lanewise_cold<With<maximum_nan<f32>>::ftz>());
    t.add("min.xorsign.abs.f32", lanewise_cold<minimum_xorsign>());
    t.add("max.xorsign.abs.f32", lanewise_cold<maximum_xorsign>());
}

void double_entries(Table& t) {
    t.add("add{,.rn}.f64", lanewise<ieee::add<f64>>());
    t.add("sub{,.rn}.f64", lanewise<ieee::sub<f64>>());
    t.add("mul{,.rn}.f64", lanewise<ieee::mul<f64>>());
    t.add("{fma,mad}.rn.f64", lanewise<ieee::fma<f64>>());
    t.add("div.rn.f64", lanewise_cold<ieee::divide<f64>>());
    t.add("sqrt.rn.f64", lanewise_cold<ieee::square_root<f64>>());
    t.add("rcp.rn.f64", lanewise_cold<ieee::reciprocal<f64>>());
    t.add("rcp.approx.ftz.f64", lanewise_cold<gross<ieee::reciprocal<f64>>>());
    t.add("rsqrt.approx.f64", lanewise_cold<reciprocal_root<f64>>());
    t.add("rsqrt.approx.ftz.f64", lanewise_cold<gross<reciprocal_root<f64>>>());
    t.add("neg.f64", lanewise<negate64>());
    t.add("abs.f64", lanewise<absolute64>());
    t.add("copysign.f64", lanewise_cold<copy_sign64>());
    t.add("min.f64", lanewise<minimum<f64>>());
    t.add("max.f64", lanewise<maximum<f64>>());
}

}  // namespace

void float_entries(Table& t) {
    single_entries(t);
    double_entries(t);
}

}  // namespace sim
