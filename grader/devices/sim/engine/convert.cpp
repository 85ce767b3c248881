// convert: cvt between integers, and from integers to floating point
#include "operation.h"

namespace sim {

namespace {

template <class D, class S>
D truncate(S a) {
    return D(a);
}
// Whether D is signed changes no bit, nor whether S is where nothing is added to its bits.
template <class D, class S>
constexpr auto truncated =
    truncate<std::make_unsigned_t<D>, std::conditional_t<(sizeof(D) > sizeof(S)), S, std::make_unsigned_t<S>>>;

template <class D, class S>
D clamp(S a) {
    constexpr D least = std::numeric_limits<D>::min(), most = std::numeric_limits<D>::max();
    if (a < 0) return std::is_signed_v<D> && s64(a) > s64(least) ? D(a) : least;
    return u64(a) < u64(most) ? D(a) : most;
}

// To floating point, to nearest even. A 64-bit integer goes to a half through a
// double rounded to odd.
template <class S>
f64 double_to_odd(S a) {
    const f64 nearest = f64(a);
    const s128 error = s128(a) - s128(nearest);
    u64 bits = bit_cast<u64>(nearest);
    if (error != 0 && !(bits & 1)) bits += (error > 0) == (nearest > 0) ? 1u : ~u64(0);
    return bit_cast<f64>(bits);
}
template <class D, class S>
D to_float(S a) {
    if constexpr (std::is_floating_point_v<D>)
        return D(a);
    else
        return narrow_double<D>(double_to_odd(a));
}
template <class D, class S>
D to_float_sat(S a) {
    return a <= 0 ? D(0) : D(1);
}

// To a half in another direction: the nearest one, moved a step back where it lies on the wrong side. The sign
// of an integer's half is never lost, so a step is one more or less in its magnitude.
enum class Side { zero, down, up };
template <class H, Side side>
H directed_double(f64 x) {
    H half = narrow_double<H>(x);
    const f64 back = f64(widen(half));
    const bool lower = side == Side::down || (side == Side::zero && x > 0);
    if (back != x && (back > x) == lower) half.bits = u16(half.bits + ((x > 0) == lower ? -1 : 1));
    return half;
}

template <class H, Side side, class S>
H directed(S a) {
    return directed_double<H, side>(double_to_odd(a));
}

template <class H, class S>
void directed_entries(Table& t, std::string_view h, std::string_view s) {
    t.add({"cvt.rz.", h, s}, lanewise_cold<directed<H, Side::zero, S>>());
    t.add({"cvt.rm.", h, s}, lanewise_cold<directed<H, Side::down, S>>());
    t.add({"cvt.rp.", h, s}, lanewise_cold<directed<H, Side::up, S>>());
}

template <class D, class S>
void between(Table& t, std::string_view d, std::string_view s) {
    Operation operation = lanewise<truncated<D, S>>();
    operation.signature = signature_of(truncate<D, S>);
    t.add({"cvt.", d, ".", s}, operation);
    t.add({"cvt.sat.", d, ".", s}, lanewise_cold<clamp<D, S>>());
}

template <class S>
void from(Table& t, std::string_view s) {
    between<u8, S>(t, "u8", s), between<s8, S>(t, "s8", s);
    between<u16, S>(t, "u16", s), between<s16, S>(t, "s16", s);
    between<u32, S>(t, "u32", s), between<s32, S>(t, "s32", s);
    between<u64, S>(t, "u64", s), between<s64, S>(t, "s64", s);
    t.add({"cvt.rn.f32.", s}, lanewise<to_float<f32, S>>());
    t.add({"cvt.rn.f64.", s}, lanewise<to_float<f64, S>>());
    t.add({"cvt.rn.f16.", s}, lanewise_cold<to_float<f16, S>>());
    t.add({"cvt.rn.bf16.", s}, lanewise_cold<to_float<bf16, S>>());
    directed_entries<f16, S>(t, "f16.", s), directed_entries<bf16, S>(t, "bf16.", s);
    t.add({"cvt.rn.sat.f32.", s}, lanewise_cold<to_float_sat<f32, S>>());
}

}  // namespace

void convert_entries(Table& t) {
    from<u8>(t, "u8"), from<s8>(t, "s8");
    from<u16>(t, "u16"), from<s16>(t, "s16");
    from<u32>(t, "u32"), from<s32>(t, "s32");
    from<u64>(t, "u64"), from<s64>(t, "s64");
}

}  // namespace sim
