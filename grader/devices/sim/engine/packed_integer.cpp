// packed_integer: two or four small integers in a register, and conversions that pack them
//
// PTX ISA 9.7.1 (max, min .relu), 9.7.9.22 (cvt.pack).
#include "operation.h"

namespace sim {

namespace {

template <class T>
s32 part(u32 word, int i) {
    return T(word >> i * 8 * int(sizeof(T)));
}

s32 maximum_relu(s32 a, s32 b) {
    const s32 m = a > b ? a : b;
    return m > 0 ? m : 0;
}
s32 minimum_relu(s32 a, s32 b) {
    const s32 m = a < b ? a : b;
    return m > 0 ? m : 0;
}
template <s32 (*F)(s32, s32)>
u32 each_half(u32 a, u32 b) {
    u32 d = 0;
    for (int i = 0; i < 2; ++i) d |= u32(u16(F(part<s16>(a, i), part<s16>(b, i)))) << 16 * i;
    return d;
}

template <class T>
u32 saturated(s32 a) {
    const s32 low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
    return u32(std::make_unsigned_t<T>(a < low ? low : a > high ? high : a));
}
// Of the two, a becomes the upper part; what c held below moves up.
template <class T>
u32 pack(s32 a, s32 b) {
    return saturated<T>(a) << 16 | saturated<T>(b);
}
template <class T>
u32 pack_onto(s32 a, s32 b, u32 c) {
    return c << 16 | saturated<T>(a) << 8 | saturated<T>(b);
}

}  // namespace

void packed_integer_entries(Table& t) {
    t.add("max.s32.relu", lanewise_cold<maximum_relu>());
    t.add("min.s32.relu", lanewise_cold<minimum_relu>());
    t.add("max{.s16x2.relu,.relu.s16x2}", lanewise_cold<each_half<maximum_relu>>());
    t.add("min{.s16x2.relu,.relu.s16x2}", lanewise_cold<each_half<minimum_relu>>());
    t.add("cvt.pack.sat.s16.s32", lanewise_cold<pack<s16>>());
    t.add("cvt.pack.sat.u16.s32", lanewise_cold<pack<u16>>());
    t.add("cvt.pack.sat.s8.s32.b32", lanewise_cold<pack_onto<s8>>());
    t.add("cvt.pack.sat.u8.s32.b32", lanewise_cold<pack_onto<u8>>());
}

}  // namespace sim
