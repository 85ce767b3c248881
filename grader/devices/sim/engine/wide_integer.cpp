// wide_integer: products wider than their factors, bit fields, permutations,
// dot products
#include "operation.h"

namespace sim {

namespace {

template <class Wide, class T>
Wide mul_wide(T a, T b) {
    return Wide(Wide(a) * Wide(b));
}
template <class Wide, class T>
Wide mad_wide(T a, T b, Wide c) {
    using U = std::make_unsigned_t<Wide>;
    return Wide(U(Wide(Wide(a) * Wide(b))) + U(c));
}

template <class T>
struct Double;
template <>
struct Double<u16> {
    using type = u32;
};
template <>
struct Double<s16> {
    using type = s32;
};
template <>
struct Double<u32> {
    using type = u64;
};
template <>
struct Double<s32> {
    using type = s64;
};
template <>
struct Double<u64> {
    using type = u128;
};
template <>
struct Double<s64> {
    using type = s128;
};

template <class T>
T mul_hi(T a, T b) {
    using W = typename Double<T>::type;
    return T((W(a) * W(b)) >> (sizeof(T) * 8));
}
template <class T>
T mad_hi(T a, T b, T c) {
    return T(u64(mul_hi(a, b)) + u64(c));
}

u32 low24(u32 a) {
    return a & 0xffffff;
}
s32 low24(s32 a) {
    return s32(u32(a) << 8) >> 8;
}
template <class T>
T mul24_lo(T a, T b) {
    return T(s64(low24(a)) * s64(low24(b)));
}
template <class T>
T mul24_hi(T a, T b) {
    return T(s64(low24(a)) * s64(low24(b)) >> 16);
}
template <class T>
T mad24_lo(T a, T b, T c) {
    return T(s64(low24(a)) * s64(low24(b)) + s64(c));
}

template <class T>
T sad(T a, T b, T c) {
    using U = std::make_unsigned_t<T>;
    return T(U(c) + (a < b ? U(b) - U(a) : U(a) - U(b)));
}

u32 lookup3(u32 a, u32 b, u32 c, u32 table) {
    u32 d = 0;
    for (u32 i = 0; i < 8; ++i) {
        const u32 match = (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
        d |= table >> i & 1 ? match : 0;
    }
    return d;
}

u32 popcount32(u32 a) {
    return u32(__builtin_popcount(a));
}
u32 popcount64(u64 a) {
    return u32(__builtin_popcountll(a));
}
u32 leading_zeros32(u32 a) {
    return a ? u32(__builtin_clz(a)) : 32;
}
u32 leading_zeros64(u64 a) {
    return a ? u32(__builtin_clzll(a)) : 64;
}
u32 reverse32(u32 a) {
    a = (a >> 1 & 0x55555555) | (a & 0x55555555) << 1;
    a = (a >> 2 & 0x33333333) | (a & 0x33333333) << 2;
    a = (a >> 4 & 0x0f0f0f0f) | (a & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(a);
}
u64 reverse64(u64 a) {
    return u64(reverse32(u32(a))) << 32 | reverse32(u32(a >> 32));
}

// Position of the highest bit that differs from the sign; shift: how far to
// move it to the top instead.
template <class T, bool shift>
u32 find_leading(T a) {
    using U = std::make_unsigned_t<T>;
    const U bits = std::is_signed_v<T> && a < 0 ? U(~U(a)) : U(a);
    if (bits == 0) return ~u32(0);
    const u32 top = 63 - u32(__builtin_clzll(u64(bits)));
    return shift ? u32(sizeof(T) * 8) - 1 - top : top;
}

// PTX ISA 9.7.1.19: position and length are taken modulo 256; the field beyond
// the top is the sign (or zero).
template <class T>
T extract(T a, u32 position, u32 length) {
    constexpr u32 top = sizeof(T) * 8 - 1;
    position &= 255;
    length &= 255;
    using U = std::make_unsigned_t<T>;
    if (length == 0) return 0;
    const u32 sign_at = position + length - 1 < top ? position + length - 1 : top;
    const bool sign = std::is_signed_v<T> && (U(a) >> sign_at & 1);
    const U mask = length > top ? ~U(0) : (U(1) << length) - 1;
    const U field = position > top ? 0 : U(U(a) >> position);
    const u32 known = position > top ? 0 : top + 1 - position;  // bits of the field that exist
    const U present = known > top ? ~U(0) : (U(1) << known) - 1;
    return T((field & mask) | (sign ? ~(mask & present) : 0));
}

template <class T>
T insert(T from, T into, u32 position, u32 length) {
    constexpr u32 top = sizeof(T) * 8 - 1;
    position &= 255;
    length &= 255;
    if (position > top) return into;
    const T mask = T((length > top ? ~T(0) : (T(1) << length) - 1) << position);
    return (into & ~mask) | (T(from << position) & mask);
}

u32 field_mask(u32 position, u32 length) {
    return insert<u32>(~0u, 0, position > 255 ? 255 : position, length > 32 ? 32 : length);
}

template <bool right, bool wrap>
u32 funnel(u32 low, u32 high, u32 n) {
    n = wrap ? n & 31 : (n > 32 ? 32 : n);
    const u64 both = u64(high) << 32 | low;
    return right ? u32(both >> n) : u32((both << n) >> 32);
}

u32 permute(u32 a, u32 b, u32 selector) {
    const u64 bytes = u64(b) << 32 | a;
    u32 d = 0;
    for (u32 i = 0; i < 4; ++i) {
        const u32 nibble = selector >> (4 * i) & 15;
        const u32 byte = u32(bytes >> (8 * (nibble & 7)) & 255);
        d |= (nibble & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
    }
    return d;
}

enum class PermuteMode { f4e, b4e, rc8, ecl, ecr, rc16 };
template <PermuteMode mode>
u32 permute_mode(u32 a, u32 b, u32 selector) {
    // PTX ISA 9.7.9.7: the selector of each mode, by its low two bits.
    constexpr u32 TABLE[6][4] = {
        {0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123}, {0x0000, 0x1111, 0x2222, 0x3333},
        {0x3210, 0x3211, 0x3222, 0x3333}, {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232},
    };
    return permute(a, b, TABLE[int(mode)][selector & 3]);
}

template <class A, class B>
s32 dot4(u32 a, u32 b, s32 c) {
    u32 sum = u32(c);
    for (int i = 0; i < 4; ++i) sum += u32(s32(A(a >> (8 * i))) * s32(B(b >> (8 * i))));
    return s32(sum);
}
template <class A, class B, int high>
s32 dot2(u32 a, u32 b, s32 c) {
    u32 sum = u32(c);
    for (int i = 0; i < 2; ++i) sum += u32(s32(A(a >> (16 * i))) * s32(B(b >> (8 * (i + 2 * high)))));
    return s32(sum);
}

template <class T>
void products(Table& t, std::string_view type) {
    t.add({"mul.hi.", type}, lanewise<mul_hi<T>>());
    t.add({"mad.hi.", type}, lanewise_cold<mad_hi<T>>());
    t.add({"sad.", type}, lanewise_cold<sad<T>>());
}

template <class T>
void wide_products(Table& t, std::string_view type) {
    using W = typename Double<T>::type;
    t.add({"mul.wide.", type}, lanewise<mul_wide<W, T>>());
    t.add({"mad.wide.", type}, lanewise<mad_wide<W, T>>());
}

template <class T>
void products24(Table& t, std::string_view type) {
    t.add({"mul24.lo.", type}, lanewise_cold<mul24_lo<T>>());
    t.add({"mul24.hi.", type}, lanewise_cold<mul24_hi<T>>());
    t.add({"mad24.lo.", type}, lanewise_cold<mad24_lo<T>>());
}

template <class T>
void bit_fields(Table& t, std::string_view type) {
    t.add({"bfe.", type}, lanewise_cold<extract<T>>());
    t.add({"bfind.", type}, lanewise_cold<find_leading<T, false>>());
    t.add({"bfind.shiftamt.", type}, lanewise_cold<find_leading<T, true>>());
}

}  // namespace

void wide_integer_entries(Table& t) {
    products<u16>(t, "u16"), products<s16>(t, "s16");
    products<u32>(t, "u32"), products<s32>(t, "s32");
    products<u64>(t, "u64"), products<s64>(t, "s64");
    wide_products<u16>(t, "u16"), wide_products<s16>(t, "s16");
    wide_products<u32>(t, "u32"), wide_products<s32>(t, "s32");
    products24<u32>(t, "u32"), products24<s32>(t, "s32");
    bit_fields<u32>(t, "u32"), bit_fields<s32>(t, "s32");
    bit_fields<u64>(t, "u64"), bit_fields<s64>(t, "s64");
    t.add("bfi.b32", lanewise_cold<insert<u32>>());
    t.add("bfi.b64", lanewise_cold<insert<u64>>());
    t.add("bmsk.clamp.b32", lanewise_cold<field_mask>());
    t.add("lop3.b32", lanewise<lookup3>());
    t.add("popc.b32", lanewise<popcount32>());
    t.add("popc.b64", lanewise<popcount64>());
    t.add("clz.b32", lanewise_cold<leading_zeros32>());
    t.add("clz.b64", lanewise_cold<leading_zeros64>());
    t.add("brev.b32", lanewise<reverse32>());
    t.add("brev.b64", lanewise<reverse64>());
    t.add("shf.l.wrap.b32", lanewise<funnel<false, true>>());
    t.add("shf.l.clamp.b32", lanewise<funnel<false, false>>());
    t.add("shf.r.wrap.b32", lanewise<funnel<true, true>>());
    t.add("shf.r.clamp.b32", lanewise<funnel<true, false>>());
    t.add("prmt.b32", lanewise<permute>());
    t.add("prmt.b32.f4e", lanewise_cold<permute_mode<PermuteMode::f4e>>());
    t.add("prmt.b32.b4e", lanewise_cold<permute_mode<PermuteMode::b4e>>());
    t.add("prmt.b32.rc8", lanewise_cold<permute_mode<PermuteMode::rc8>>());
    t.add("prmt.b32.ecl", lanewise_cold<permute_mode<PermuteMode::ecl>>());
    t.add("prmt.b32.ecr", lanewise_cold<permute_mode<PermuteMode::ecr>>());
    t.add("prmt.b32.rc16", lanewise_cold<permute_mode<PermuteMode::rc16>>());
    t.add("dp4a.u32.u32", lanewise_cold<dot4<u8, u8>>());
    t.add("dp4a.s32.s32", lanewise_cold<dot4<s8, s8>>());
    t.add("dp4a.u32.s32", lanewise_cold<dot4<u8, s8>>());
    t.add("dp4a.s32.u32", lanewise_cold<dot4<s8, u8>>());
    t.add("dp2a.lo.u32.u32", lanewise_cold<dot2<u16, u8, 0>>());
    t.add("dp2a.lo.s32.s32", lanewise_cold<dot2<s16, s8, 0>>());
    t.add("dp2a.lo.u32.s32", lanewise_cold<dot2<u16, s8, 0>>());
    t.add("dp2a.lo.s32.u32", lanewise_cold<dot2<s16, u8, 0>>());
    t.add("dp2a.hi.u32.s32", lanewise_cold<dot2<u16, s8, 1>>());
    t.add("dp2a.hi.s32.u32", lanewise_cold<dot2<s16, u8, 1>>());
    t.add("dp2a.hi.u32.u32", lanewise_cold<dot2<u16, u8, 1>>());
    t.add("dp2a.hi.s32.s32", lanewise_cold<dot2<s16, s8, 1>>());
}

}  // namespace sim
