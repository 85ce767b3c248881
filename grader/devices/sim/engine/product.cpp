#include "product.h"

#include <algorithm>

namespace sim {

namespace {

constexpr u32 EXPONENT = 0x7f800000u;
constexpr u64 BELOW_SINGLE = 0x1fffffffu;  // bits of a double's fraction that a single does not have

using f32x4 = f32 __attribute__((vector_size(16)));
using s32x4 = s32 __attribute__((vector_size(16)));
using s16x8 = s16 __attribute__((vector_size(16)));
using f32x8 = f32 __attribute__((vector_size(32)));
using s32x8 = s32 __attribute__((vector_size(32)));
using u32x8 = u32 __attribute__((vector_size(32)));
using s16x16 = s16 __attribute__((vector_size(32)));
using f64x4 = f64 __attribute__((vector_size(32)));
using u64x4 = u64 __attribute__((vector_size(32)));

// ---- values whose products and scales stay in the range of single precision

constexpr int LEAST_TAME = -50, MOST_TAME = 50;  // of what is multiplied
constexpr int LEAST_SUM = -100, MOST_SUM = 120;  // of what is added
constexpr s16 OF_ZERO = -10000;                  // in the place of an exponent: less than any sum of two

f32 power_of(int exponent) {
    return bit_cast<f32>(u32(127 + exponent) << 23);
}

// All are zero or between the powers of two, so no NaN and no infinity either.
bool within(const f32* x, int count, int low, int high) {
    const u32 least = bit_cast<u32>(power_of(low)), span = bit_cast<u32>(power_of(high)) - least;
    u32 bad = 0;
    for (int i = 0; i < count; ++i) {
        const u32 magnitude = bit_cast<u32>(x[i]) & 0x7fffffff;
        bad |= u32(magnitude != 0) & u32(magnitude - least > span);
    }
    return !bad;
}

bool is_zero(const f32* x, int count) {
    u32 any = 0;
    for (int i = 0; i < count; ++i) any |= bit_cast<u32>(x[i]) << 1;
    return !any;
}

// That of a number below the least normal one of its type is the least.
void take_exponents(const f32* x, int count, int least, s16* exponents) {
    for (int i = 0; i < count; ++i) {
        const u32 magnitude = bit_cast<u32>(x[i]) & 0x7fffffff;
        const s32 exponent = s32(magnitude >> 23) - 127;
        exponents[i] = s16(!magnitude ? OF_ZERO : exponent < least ? least : exponent);
    }
}

// Vectors of 32 bytes: where a processor has no longer ones, compilers pass these through memory.

// The two elements of a pair, again and again.
inline f32x8 repeated(const f32* pair) {
    f64 bits;
    std::memcpy(&bits, pair, sizeof bits);
    return reinterpret_cast<f32x8>(f64x4{bits, bits, bits, bits});
}
inline s16x16 repeated(const s16* pair) {
    u32 bits;
    std::memcpy(&bits, pair, sizeof bits);
    return reinterpret_cast<s16x16>(u32x8{bits, bits, bits, bits, bits, bits, bits, bits});
}

// Both sums together, with the bits that a single has no place for cut off.
inline f32x4 add_cut(const s32x4& products, const s32x4& addend, u64 odd) {
    const f64x4 sum = __builtin_convertvector(products, f64x4) + __builtin_convertvector(addend, f64x4);
    const u64x4 bits = reinterpret_cast<u64x4>(sum);
    const u64x4 sticky = (bits & BELOW_SINGLE) + BELOW_SINGLE;  // bit 29 is set unless nothing is lost
    return __builtin_convertvector(reinterpret_cast<f64x4>((bits & ~BELOW_SINGLE) | (sticky & odd)), f32x4);
}

// The largest exponent of the addends c and of their products.
inline s32x8 largest_of(const f32x8& c, const s16x8& of_products, const Sum& how) {
    const s32x8 wide = __builtin_convertvector(of_products, s32x8);
    const s32 least = std::max(how.least, LEAST_SUM);
    s32x8 largest = reinterpret_cast<s32x8>((reinterpret_cast<u32x8>(c) & EXPONENT) >> 23) - 127;
    largest = largest > least ? largest : c == 0 ? s32x8{} + LEAST_SUM : s32x8{} + least;
    return wide > largest ? wide : largest;
}

// The sums of two rows, four columns in each of two vectors. `k`: the depth, known at compile time where it is usual.
inline __attribute__((always_inline)) void tame_pair(
    int k, const f32* a, const s16* a_exponents, const f32x8* b, const s16x16* b_exponents, const Sum& how, f32x8* d) {
    union {
        s16x16 all;
        s16x8 half[2];
    } most = {s16x16{} + OF_ZERO};
#pragma GCC unroll 32
    for (int p = 0; p < k; ++p) {
        const s16x16 exponent = repeated(a_exponents + 2 * p) + b_exponents[p];
        most.all = exponent > most.all ? exponent : most.all;
    }
    s32x8 largest[2], sum[2] = {};
    f32x8 scale[2];  // 2^fraction / 2^largest
    for (int h = 0; h < 2; ++h) {
        largest[h] = largest_of(d[h], most.half[h], how);
        scale[h] = reinterpret_cast<f32x8>((127 + how.fraction - largest[h]) << 23);
    }
#pragma GCC unroll 32
    for (int p = 0; p < k; ++p) {
        const f32x8 both = repeated(a + 2 * p);
        sum[0] += __builtin_convertvector(both * b[2 * p] * scale[0], s32x8);
        sum[1] += __builtin_convertvector(both * b[2 * p + 1] * scale[1], s32x8);
    }
    const u64 odd = how.cut == Cut::to_odd ? BELOW_SINGLE + 1 : 0;
    for (int h = 0; h < 2; ++h) {
        union {
            s32x8 all;
            s32x4 half[2];
        } sums = {sum[h]}, addends = {__builtin_convertvector(d[h] * scale[h], s32x8)};
        union {
            f32x4 half[2];
            f32x8 all;
        } rounded = {{add_cut(sums.half[0], addends.half[0], odd), add_cut(sums.half[1], addends.half[1], odd)}};
        d[h] = rounded.all * reinterpret_cast<f32x8>((127 - how.fraction + largest[h]) << 23);
    }
}

template <int depth>
void tame_pairs(const Left& a, const Right& b, const Sum& how, f32x8* d) {
    const int k = depth ? depth : a.k;
    const auto* wide_b = reinterpret_cast<const f32x8*>(b.values);
    const auto* b_exponents = reinterpret_cast<const s16x16*>(b.exponents);
    for (int i = 0; i < a.rows / 2; ++i)
        tame_pair(k, a.values + 2 * i * k, a.exponents + 2 * i * k, wide_b, b_exponents, how, d + 2 * i);
}

// ---- any values, one result after the other

f32 round_single(f64 x, Cut cut) {
    // A denormal's last place is 2^-149, a normal's 23 bits below its first.
    const int exponent = x == 0 ? 0 : std::ilogb(x);
    const f64 place = std::ldexp(1.0, (exponent < -126 ? -126 : exponent) - 23);
    const f64 kept = std::trunc(x / place);
    const bool odd = cut == Cut::to_odd && kept != x / place && std::fmod(kept, 2) == 0;
    return f32((odd ? kept + std::copysign(1.0, x) : kept) * place) + 0.0f;  // never -0
}

f32 finite_sum(const f64* terms, const int* exponents, int count, Cut cut, int fraction) {
    int largest = std::numeric_limits<int>::min();
    for (int i = 0; i < count; ++i)
        if (terms[i] != 0 && exponents[i] > largest) largest = exponents[i];
    f64 sum = 0;
    for (int i = 0; i < count; ++i)
        if (terms[i] != 0) sum += std::trunc(std::ldexp(terms[i], fraction - largest));
    return sum == 0 ? 0.0f : round_single(std::ldexp(sum, largest - fraction), cut);
}

// The sum at row i, column j, with d there.
f32 wild_sum(const Left& a, const Right& b, int i, int j, f32 d, const Sum& how) {
    f64 terms[MOST_STEP + 1], special = 0;
    int exponents[MOST_STEP + 1];
    for (int k = 0; k <= a.k; ++k) {
        const bool addend = k == a.k;
        const f64 x = addend ? f64(d) : f64(a.at(i, k)), y = addend ? 1.0 : f64(b.at(k, j));
        terms[k] = x * y;
        special += terms[k] - terms[k] == 0 ? 0 : terms[k];
        exponents[k] = terms[k] == 0 || !std::isfinite(terms[k]) ? 0
                       : addend ? std::max(std::ilogb(x), how.least)
                                : std::max(std::ilogb(x), a.least) + std::max(std::ilogb(y), b.least);
    }
    if (special != special) return bit_cast<f32>(CANONICAL_NAN);
    return special != 0 ? f32(special) : finite_sum(terms, exponents, a.k + 1, how.cut, how.fraction);
}

void wild_sums(const Left& a, const Right& b, const Sum& how, f32* d) {
    for (int i = 0; i < a.rows; ++i)
        for (int j = 0; j < COLUMNS; ++j) {
            f32& place = d[place_in_pairs(a.rows, COLUMNS, i, j)];
            place = wild_sum(a, b, i, j, place, how);
        }
}

// What a result of fewer bits does not have is cut off.
void shorten(int count, int fraction, f32* d) {
    constexpr int SINGLE = 23;
    const u32 kept = ~((1u << (SINGLE - fraction)) - 1);
    for (int i = 0; i < count; ++i)
        if (std::isfinite(d[i])) d[i] = bit_cast<f32>(bit_cast<u32>(d[i]) & kept);
}

}  // namespace

void Left::take(int all_rows, int depth, int stride, const f32* a, int least_exponent) {
    rows = all_rows, k = depth, least = least_exponent;
    for (int i = 0; i < rows / 2; ++i) {
        const f32 *first = a + i * stride, *second = a + (i + rows / 2) * stride;
        for (int p = 0; p < k; ++p) values[2 * (i * k + p)] = first[p], values[2 * (i * k + p) + 1] = second[p];
    }
    take_exponents(values, rows * k, least, exponents);
    is_tame = within(values, rows * k, LEAST_TAME, MOST_TAME);
    is_zero = sim::is_zero(values, rows * k);
}

void Right::take(int depth, const f32* b, int least_exponent) {
    least = least_exponent;
    for (int i = 0; i < depth * COLUMNS; ++i) values[2 * i] = values[2 * i + 1] = b[i];
    take_exponents(values, 2 * depth * COLUMNS, least, exponents);
    is_tame = within(b, depth * COLUMNS, LEAST_TAME, MOST_TAME);
    is_zero = sim::is_zero(b, depth * COLUMNS);
}

void add_product(const Left& a, const Right& b, const Sum& how, f32* d) {
    const int count = a.rows * COLUMNS;
    auto* pairs = reinterpret_cast<f32x8*>(d);
    if (!a.is_tame || !b.is_tame || !within(d, count, LEAST_SUM, MOST_SUM))
        wild_sums(a, b, how, d);
    else if ((a.is_zero || b.is_zero) && is_zero(d, count))  // as in the part of a tile that lies outside of a matrix
        std::fill(d, d + count, 0.0f);
    else if (a.k == 16)
        tame_pairs<16>(a, b, how, pairs);
    else if (a.k == 32)
        tame_pairs<32>(a, b, how, pairs);
    else if (a.k == 8)
        tame_pairs<8>(a, b, how, pairs);
    else
        tame_pairs<0>(a, b, how, pairs);
    if (how.fraction < FRACTION && how.cut == Cut::to_zero) shorten(count, how.fraction, d);
}

void multiply(int rows, int k, const f32* a, const f32* b, f32* d, Cut cut, Least least, int step) {
    const Sum how{cut, least.c, FRACTION};
    alignas(64) f32 pairs[MOST_ROWS * COLUMNS];
    const int half = rows / 2 * COLUMNS;
    for (int i = 0; i < half; ++i) pairs[2 * i] = d[i], pairs[2 * i + 1] = d[half + i];
    Left left;
    Right right;
    for (int from = 0; from < k; from += step) {
        const int depth = std::min(step, k - from);
        left.take(rows, depth, k, a + from, least.a);
        right.take(depth, b + from * COLUMNS, least.b);
        add_product(left, right, how, pairs);
    }
    for (int i = 0; i < half; ++i) d[i] = pairs[2 * i], d[half + i] = pairs[2 * i + 1];
}

}  // namespace sim
