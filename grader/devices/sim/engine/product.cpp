#include "product.h"

#include <algorithm>

namespace sim {

namespace {

constexpr int MOST_ROWS = 32;
constexpr u32 EXPONENT = 0x7f800000u;
constexpr u64 BELOW_SINGLE = 0x1fffffffu;  // bits of a double's fraction that a single does not have

using s32x8 = s32 __attribute__((vector_size(32)));
using u32x8 = u32 __attribute__((vector_size(32)));
using f32x16 = f32 __attribute__((vector_size(64)));
using s32x16 = s32 __attribute__((vector_size(64)));
using u32x16 = u32 __attribute__((vector_size(64)));
using f64x8 = f64 __attribute__((vector_size(64)));
using u64x8 = u64 __attribute__((vector_size(64)));

struct Step {
    int rows, k, stride;  // a is [rows][stride], of which k are this step's
    const f32* a;
    const f32x8* b;
    f32x8* d;
    Cut cut;
    int fraction;
    Least least;
};

// ---- values whose products and scales stay in the range of single precision

// All are zero or between the powers of two, so no NaN and no infinity either.
bool within(const f32* x, int count, f32 low, f32 high) {
    const u32 least = bit_cast<u32>(low), span = bit_cast<u32>(high) - least;
    u32 bad = 0;
    for (int i = 0; i < count; ++i) {
        const u32 magnitude = bit_cast<u32>(x[i]) & 0x7fffffff;
        bad |= u32(magnitude != 0) & u32(magnitude - least > span);
    }
    return !bad;
}

f32 power_of(int exponent) {
    return bit_cast<f32>(u32(127 + exponent) << 23);
}

constexpr int LEAST_TAME = -50, MOST_TAME = 50;

// Those of a and of b are zero or at least the two powers of two.
bool are_tame(const Step& s, Least low) {
    const f32 from = power_of(std::max(low.a, LEAST_TAME)), high = power_of(MOST_TAME);
    bool tame = within(reinterpret_cast<const f32*>(s.b), s.k * COLUMNS, power_of(std::max(low.b, LEAST_TAME)), high);
    if (s.k == s.stride) return tame && within(s.a, s.rows * s.k, from, high);
    for (int i = 0; i < s.rows; ++i) tame = tame && within(s.a + i * s.stride, s.k, from, high);
    return tame;
}
bool is_sum_tame(const Step& s) {
    return within(reinterpret_cast<const f32*>(s.d), s.rows * COLUMNS, 0x1p-100f, 0x1p120f);
}

bool is_zero(const f32* x, int count) {
    u32 any = 0;
    for (int i = 0; i < count; ++i) any |= bit_cast<u32>(x[i]) << 1;
    return !any;
}
// Nothing is added to nothing, as in the part of a tile that lies outside of a matrix. The values are tame.
bool is_nothing(const Step& s) {
    if (!is_zero(reinterpret_cast<const f32*>(s.d), s.rows * COLUMNS)) return false;
    if (is_zero(reinterpret_cast<const f32*>(s.b), s.k * COLUMNS)) return true;
    bool nothing = true;
    for (int i = 0; nothing && i < s.rows; ++i) nothing = is_zero(s.a + i * s.stride, s.k);
    return nothing;
}

// The power of two of each value; 0 of 0.
f32 power(f32 x) {
    return bit_cast<f32>(bit_cast<u32>(x) & EXPONENT);
}

// Both sums together, with the bits that a single has no place for cut off.
inline __attribute__((always_inline)) f32x8 add_cut(const s32x8& products, const s32x8& addend, u64 odd) {
    const f64x8 sum = __builtin_convertvector(products, f64x8) + __builtin_convertvector(addend, f64x8);
    const u64x8 bits = reinterpret_cast<u64x8>(sum);
    const u64x8 sticky = (bits & BELOW_SINGLE) + BELOW_SINGLE;  // bit 29 is set unless nothing is lost
    return __builtin_convertvector(reinterpret_cast<f64x8>((bits & ~BELOW_SINGLE) | (sticky & odd)), f32x8);
}

// Two rows of a and of d are one, element by element in turn, and each element of b stands twice: a vector is 16 sums,
// and a pair of a's elements is eight times 64 bits.
constexpr int PAIR = 2 * COLUMNS;

void interleave(const f32* first, const f32* second, int count, f32* both) {
    for (int i = 0; i < count; ++i) both[2 * i] = first[i], both[2 * i + 1] = second[i];
}
void part(const f32* both, f32* first, f32* second) {
    for (int i = 0; i < COLUMNS; ++i) first[i] = both[2 * i], second[i] = both[2 * i + 1];
}

// Where `denormal` numbers are among the values, they have the power of the least normal one.
template <bool denormal>
void take_powers(const f32* x, int count, f32 least, f32* powers) {
    for (int i = 0; i < count; ++i) {
        const f32 p = power(x[i]);
        powers[i] = denormal && p != 0 && p < least ? least : p;
    }
}

inline f32x16 eight_times(const f32* pair) {
    f64 bits;
    std::memcpy(&bits, pair, sizeof bits);
    return reinterpret_cast<f32x16>(f64x8{bits, bits, bits, bits, bits, bits, bits, bits});
}

// `k`: the step's, known at compile time where it is STEP.
inline __attribute__((always_inline)) void tame_pair(
    const Step& s, int k, const f32* a, const f32* a_powers, const f32x16* b, const f32x16* b_powers, f32x16* d) {
    const f32x16 c = *d;
    // 0 gives the least of all
    f32x16 largest = reinterpret_cast<f32x16>(reinterpret_cast<u32x16>(c) & EXPONENT);
    const f32 least = s.least.c < -100 ? 0x1p-100f : power_of(s.least.c);
    largest = largest > least ? largest : c == 0 ? f32x16{} + 0x1p-100f : f32x16{} + least;
#pragma GCC unroll 16
    for (int p = 0; p < k; ++p) {
        const f32x16 product = eight_times(a_powers + 2 * p) * b_powers[p];
        largest = product > largest ? product : largest;
    }
    // 2^fraction / largest, by its exponent
    const f32x16 scale =
        reinterpret_cast<f32x16>((u32(2 * 127 + s.fraction) << 23) - reinterpret_cast<u32x16>(largest));
    s32x16 sum = {};
#pragma GCC unroll 16
    for (int p = 0; p < k; ++p) sum += __builtin_convertvector(eight_times(a + 2 * p) * b[p] * scale, s32x16);
    const s32x16 addend = __builtin_convertvector(c * scale, s32x16);
    const u64 odd = s.cut == Cut::to_odd ? BELOW_SINGLE + 1 : 0;
    union {
        s32x16 all;
        s32x8 half[2];
    } sums = {sum}, addends = {addend};
    union {
        f32x8 half[2];
        f32x16 all;
    } rounded;
    for (int h = 0; h < 2; ++h) rounded.half[h] = add_cut(sums.half[h], addends.half[h], odd);
    *d = rounded.all * (largest * power_of(-s.fraction));
}

// `denormal`: some of the values are below the least normal ones of their types.
template <bool denormal>
void tame_step(const Step& s) {
    alignas(64) f32 a[MOST_ROWS * MOST_STEP], b[MOST_STEP * PAIR], d[MOST_ROWS * COLUMNS];
    alignas(64) f32 a_powers[MOST_ROWS * MOST_STEP], b_powers[MOST_STEP * PAIR];
    f32* given_d = reinterpret_cast<f32*>(s.d);
    const f32* given_b = reinterpret_cast<const f32*>(s.b);
    for (int i = 0; i < s.rows; i += 2) {
        interleave(s.a + i * s.stride, s.a + (i + 1) * s.stride, s.k, a + i * s.k);
        interleave(given_d + i * COLUMNS, given_d + (i + 1) * COLUMNS, COLUMNS, d + i * COLUMNS);
    }
    interleave(given_b, given_b, s.k * COLUMNS, b);
    take_powers<denormal>(a, s.rows * s.k, power_of(s.least.a), a_powers);
    take_powers<denormal>(b, s.k * PAIR, power_of(s.least.b), b_powers);
    const auto* wide_b = reinterpret_cast<const f32x16*>(b);
    const auto* wide_powers = reinterpret_cast<const f32x16*>(b_powers);
    auto* sums = reinterpret_cast<f32x16*>(d);
    for (int i = 0; i < s.rows / 2; ++i) {
        const int at = 2 * i * s.k;
        if (s.k == STEP)
            tame_pair(s, STEP, a + at, a_powers + at, wide_b, wide_powers, sums + i);
        else
            tame_pair(s, s.k, a + at, a_powers + at, wide_b, wide_powers, sums + i);
    }
    for (int i = 0; i < s.rows; i += 2) part(d + i * COLUMNS, given_d + i * COLUMNS, given_d + (i + 1) * COLUMNS);
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

f32 wild_sum(const Step& s, int i, int j) {
    f64 terms[MOST_STEP + 1], special = 0;
    int exponents[MOST_STEP + 1];
    for (int k = 0; k <= s.k; ++k) {
        const bool addend = k == s.k;
        const f64 x = addend ? f64(s.d[i][j]) : f64(s.a[i * s.stride + k]), y = addend ? 1.0 : f64(s.b[k][j]);
        terms[k] = x * y;
        special += terms[k] - terms[k] == 0 ? 0 : terms[k];
        exponents[k] = terms[k] == 0 || !std::isfinite(terms[k]) ? 0
                       : addend ? std::max(std::ilogb(x), s.least.c)
                                : std::max(std::ilogb(x), s.least.a) + std::max(std::ilogb(y), s.least.b);
    }
    if (special != special) return bit_cast<f32>(CANONICAL_NAN);
    return special != 0 ? f32(special) : finite_sum(terms, exponents, s.k + 1, s.cut, s.fraction);
}

void wild_step(const Step& s) {
    f32x8 result[MOST_ROWS];
    for (int i = 0; i < s.rows; ++i)
        for (int j = 0; j < COLUMNS; ++j) result[i][j] = wild_sum(s, i, j);
    for (int i = 0; i < s.rows; ++i) s.d[i] = result[i];
}

}  // namespace

namespace {

// What a result of fewer bits does not have is cut off.
void shorten(int rows, int fraction, f32x8* d) {
    constexpr int SINGLE = 23;
    const u32 kept = ~((1u << (SINGLE - fraction)) - 1);
    for (int i = 0; i < rows; ++i) {
        const u32x8 bits = reinterpret_cast<u32x8>(d[i]);
        for (int j = 0; j < COLUMNS; ++j)
            if (std::isfinite(d[i][j])) d[i][j] = bit_cast<f32>(bits[j] & kept);
    }
}

}  // namespace

void multiply(int rows, int k, const f32* a, const f32x8* b, f32x8* d, Cut cut, Least least, int step, int fraction) {
    for (int from = 0; from < k; from += step) {
        const Step next{rows, k - from < step ? k - from : step, k, a + from, b + from, d, cut, fraction, least};
        const bool tame = is_sum_tame(next);
        if (tame && are_tame(next, least) && is_nothing(next))
            std::fill(d, d + rows, f32x8{});
        else if (tame && are_tame(next, least))
            tame_step<false>(next);
        else if (tame && are_tame(next, {}))
            tame_step<true>(next);
        else
            wild_step(next);
    }
    if (fraction < FRACTION && cut == Cut::to_zero) shorten(rows, fraction, d);
}

}  // namespace sim
