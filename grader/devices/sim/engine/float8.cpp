// float8: cvt between e4m3, e5m2 and the wider floating point types, two at a time
//
// PTX ISA 9.7.9.21, "cvt": .satfinite gives the largest finite value for all
// that is beyond it, infinities too. To nearest even always.
#include "fragment.h"
#include "operation.h"

namespace sim {

namespace {

template <class F>
struct Format8;
template <>
struct Format8<e4m3> {
    static constexpr int fraction = 3, bias = 7;
    static constexpr u32 largest = 0x7e;  // 448
};
template <>
struct Format8<e5m2> {
    static constexpr int fraction = 2, bias = 15;
    static constexpr u32 largest = 0x7b;  // 57344
};
constexpr u32 NAN8 = 0x7f;

template <class F>
F to_nearest(f32 x) {
    constexpr int least = 1 - Format8<F>::bias, fraction = Format8<F>::fraction;
    const u32 bits = bit_cast<u32>(x), sign = bits >> 24 & 0x80;
    if (x != x) return {u8(NAN8)};
    if (std::isinf(x)) return {u8(sign | Format8<F>::largest)};
    const int own = int(bits >> 23 & 0xff) - 127, exponent = own < least ? least : own;
    // In units of the last place; a carry moves into the exponent by itself.
    const u32 units = u32(std::nearbyint(std::ldexp(std::fabs(x), fraction - exponent)));
    const u32 magnitude = units + (u32(exponent - least) << fraction);
    return {u8(sign | (magnitude < Format8<F>::largest ? magnitude : Format8<F>::largest))};
}

template <class F>
F to_nearest_relu(f32 x) {
    return x < 0 || x == 0 ? F{0} : to_nearest<F>(x);
}

template <class F>
struct Two {
    F low, high;
};

// cvt.e4m3x2.f32 d, a, b: a becomes the upper byte
template <class F, F (*narrow8)(f32)>
u16 from_singles(f32 a, f32 b) {
    return bit_cast<u16>(Two<F>{narrow8(b), narrow8(a)});
}
template <class F, F (*narrow8)(f32), class H>
u16 from_halves(pair<H> a) {
    return bit_cast<u16>(Two<F>{narrow8(widen(a.low)), narrow8(widen(a.high))});
}
template <class F>
f16x2 to_halves(u16 a) {
    const auto two = bit_cast<Two<F>>(a);
    return {narrow<f16>(widen(two.low)), narrow<f16>(widen(two.high))};
}
f16 rectified(f16 a) {
    return {u16(a.bits & 0x8000 && widen(a) == widen(a) ? 0 : a.bits)};
}
template <class F>
f16x2 to_halves_relu(u16 a) {
    const f16x2 halves = to_halves<F>(a);
    return {rectified(halves.low), rectified(halves.high)};
}

template <class F>
void type_entries(Table& t, std::string_view type) {
    t.add({"cvt.rn.satfinite.", type, ".f32"}, lanewise_cold<from_singles<F, to_nearest<F>>>());
    t.add({"cvt.rn.satfinite.relu.", type, ".f32"}, lanewise_cold<from_singles<F, to_nearest_relu<F>>>());
    t.add({"cvt.rn.satfinite.", type, ".f16x2"}, lanewise_cold<from_halves<F, to_nearest<F>, f16>>());
    t.add({"cvt.rn.satfinite.relu.", type, ".f16x2"}, lanewise_cold<from_halves<F, to_nearest_relu<F>, f16>>());
    t.add({"cvt.rn.f16x2.", type}, lanewise_cold<to_halves<F>>());
    t.add({"cvt.rn.relu.f16x2.", type}, lanewise_cold<to_halves_relu<F>>());
}

}  // namespace

void float8_entries(Table& t) {
    type_entries<e4m3>(t, "e4m3x2");
    type_entries<e5m2>(t, "e5m2x2");
}

}  // namespace sim
