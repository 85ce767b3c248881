// half: f16, f16x2, bf16 and bf16x2 arithmetic
//
// Sums and products of two halves rounded through single precision are rounded
// as if once, because single precision has more than twice a half's bits; fma
// rounds to odd on the way (scalar.h).
#include "operation.h"

namespace sim {

namespace {

template <class H>
H add(H a, H b) {
    return narrow<H>(widen(a) + widen(b));
}
template <class H>
H sub(H a, H b) {
    return narrow<H>(widen(a) - widen(b));
}
template <class H>
H mul(H a, H b) {
    return narrow<H>(widen(a) * widen(b));
}
template <class H>
H fma(H a, H b, H c) {
    return fused(a, b, c);
}
template <class H>
H negate(H a) {
    return {u16(a.bits ^ 0x8000)};
}
template <class H>
H absolute(H a) {
    return {u16(a.bits & 0x7fff)};
}
template <class H>
bool is_nan(H a) {
    return widen(a) != widen(a);
}
template <class H>
H minimum(H a, H b) {
    const f32 x = widen(a), y = widen(b);
    if (x != x) return y != y ? H{CANONICAL_NAN16} : b;
    if (y != y) return a;
    return x < y || (x == y && std::signbit(x)) ? a : b;
}
template <class H>
H maximum(H a, H b) {
    const f32 x = widen(a), y = widen(b);
    if (x != x) return y != y ? H{CANONICAL_NAN16} : b;
    if (y != y) return a;
    return x > y || (x == y && !std::signbit(x)) ? a : b;
}
template <class H>
H minimum_nan(H a, H b) {
    return is_nan(a) || is_nan(b) ? H{CANONICAL_NAN16} : minimum(a, b);
}
template <class H>
H maximum_nan(H a, H b) {
    return is_nan(a) || is_nan(b) ? H{CANONICAL_NAN16} : maximum(a, b);
}
template <class H>
H relu(H a) {
    return is_nan(a) ? H{CANONICAL_NAN16} : H{u16(a.bits & 0x8000 ? 0 : a.bits)};
}
template <class H>
H fma_relu(H a, H b, H c) {
    return relu(fused(a, b, c));
}
template <class H>
H saturate(H a) {
    const f32 x = widen(a);
    return narrow<H>(x > 0 ? (x < 1 ? x : 1.0f) : 0.0f);
}
template <class H>
H add_sat(H a, H b) {
    return saturate(add(a, b));
}
template <class H>
H sub_sat(H a, H b) {
    return saturate(sub(a, b));
}
template <class H>
H mul_sat(H a, H b) {
    return saturate(mul(a, b));
}
template <class H>
H fma_sat(H a, H b, H c) {
    return saturate(fused(a, b, c));
}
template <class H>
H exp2_approx(H a) {
    return narrow<H>(std::exp2(widen(a)));
}
template <class H>
H tanh_approx(H a) {
    return narrow<H>(std::tanh(widen(a)));
}

template <auto F, class S>
struct Twice;
template <auto F, class H, class... S>
struct Twice<F, H (*)(S...)> {
    static pair<H> run(pair<S>... s) { return {F(s.low...), F(s.high...)}; }
};

// The form with one element and, with "x2", the form with two.
template <auto F>
void both(Table& t, std::string_view name, std::string_view type) {
    t.add({name, type}, lanewise<F>());
    t.add({name, type, "x2"}, lanewise<Twice<F, decltype(F)>::run>());
}
template <auto F>
void both_cold(Table& t, std::string_view name, std::string_view type) {
    t.add({name, type}, lanewise_cold<F>());
    t.add({name, type, "x2"}, lanewise_cold<Twice<F, decltype(F)>::run>());
}

template <class H>
void common(Table& t, std::string_view type) {
    both<add<H>>(t, "add{,.rn}.", type);
    both<sub<H>>(t, "sub{,.rn}.", type);
    both<mul<H>>(t, "mul{,.rn}.", type);
    both<fma<H>>(t, "fma.rn.", type);
    both_cold<fma_relu<H>>(t, "fma.rn.relu.", type);
    both<negate<H>>(t, "neg.", type);
    both<absolute<H>>(t, "abs.", type);
    both<minimum<H>>(t, "min.", type);
    both<maximum<H>>(t, "max.", type);
    both_cold<minimum_nan<H>>(t, "min.NaN.", type);
    both_cold<maximum_nan<H>>(t, "max.NaN.", type);
    both_cold<tanh_approx<H>>(t, "tanh.approx.", type);
}

}  // namespace

void half_entries(Table& t) {
    common<f16>(t, "f16");
    common<bf16>(t, "bf16");
    both_cold<add_sat<f16>>(t, "add{,.rn}.sat.", "f16");
    both_cold<sub_sat<f16>>(t, "sub{,.rn}.sat.", "f16");
    both_cold<mul_sat<f16>>(t, "mul{,.rn}.sat.", "f16");
    both_cold<fma_sat<f16>>(t, "fma.rn.sat.", "f16");
    both_cold<exp2_approx<f16>>(t, "ex2.approx.", "f16");
    both_cold<exp2_approx<bf16>>(t, "ex2.approx.ftz.", "bf16");
}

}  // namespace sim
