#include "product.h"

#include <algorithm>

namespace sim {

namespace {

constexpr int MOST_ROWS = 32;
constexpr u32 EXPONENT = 0x7f800000u;
constexpr u64 BELOW_SINGLE = 0x1fffffffu;  // bits of a double's fraction that a single does not have

using s32x8 = s32 __attribute__((vector_size(32)));
using u32x8 = u32 __attribute__((vector_size(32)));
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

// The power of two of each value; 0 of 0.
f32 power(f32 x) {
    return bit_cast<f32>(bit_cast<u32>(x) & EXPONENT);
}

// The sum of both, with the bits that a single has no place for cut off.
inline __attribute__((always_inline)) void add_cut(const s32x8& products, const s32x8& addend, u64 odd, f32x8& result) {
    const f64x8 sum = __builtin_convertvector(products, f64x8) + __builtin_convertvector(addend, f64x8);
    const u64x8 bits = reinterpret_cast<u64x8>(sum);
    const u64x8 sticky = (bits & BELOW_SINGLE) + BELOW_SINGLE;  // bit 29 is set unless nothing is lost
    result = __builtin_convertvector(reinterpret_cast<f64x8>((bits & ~BELOW_SINGLE) | (sticky & odd)), f32x8);
}

// `denormal`: some of the values are below the least normal ones of their types.
template <bool denormal>
inline __attribute__((always_inline)) void tame_row(const Step& s, int i, const f32x8* powers) {
    const f32 least = power_of(s.least.a);
    const f32* a = s.a + i * s.stride;
    const f32x8 c = s.d[i];
    f32x8 largest = reinterpret_cast<f32x8>(reinterpret_cast<u32x8>(c) & EXPONENT);
    largest = largest > 0x1p-100f ? largest : f32x8{} + 0x1p-100f;
    for (int k = 0; k < s.k; ++k) {
        const f32 first = denormal && a[k] != 0 ? std::max(power(a[k]), least) : power(a[k]);
        const f32x8 product = first * powers[k];
        largest = product > largest ? product : largest;
    }
    // 2^fraction / largest, by its exponent
    const f32x8 scale = reinterpret_cast<f32x8>((u32(2 * 127 + s.fraction) << 23) - reinterpret_cast<u32x8>(largest));
    s32x8 sum = {};
    for (int k = 0; k < s.k; ++k) sum += __builtin_convertvector(a[k] * s.b[k] * scale, s32x8);
    const s32x8 addend = __builtin_convertvector(c * scale, s32x8);
    const u64 odd = s.cut == Cut::to_odd ? BELOW_SINGLE + 1 : 0;
    f32x8 scaled;
    add_cut(sum, addend, odd, scaled);
    s.d[i] = scaled * (largest * (1.0f / f32(1 << s.fraction)));
}

template <bool denormal>
void tame_step(const Step& s) {
    f32x8 powers[MOST_STEP];
    const f32 least = power_of(s.least.b);
    for (int k = 0; k < s.k; ++k) {
        powers[k] = reinterpret_cast<f32x8>(reinterpret_cast<u32x8>(s.b[k]) & EXPONENT);
        for (int j = 0; denormal && j < COLUMNS; ++j)
            if (powers[k][j] != 0) powers[k][j] = std::max(powers[k][j], least);
    }
    for (int i = 0; i < s.rows; ++i) tame_row<denormal>(s, i, powers);
}

// ---- any values, one result after the other

f32 round_single(f64 x, Cut cut) {
    // A denormal's last place is 2^-149, a normal's 23 bits below its first.
    const int exponent = x == 0 ? 0 : std::ilogb(x);
    const f64 place = std::ldexp(1.0, (exponent < -126 ? -126 : exponent) - 23);
    const f64 kept = std::trunc(x / place);
    const bool odd = cut == Cut::to_odd && kept != x / place && std::fmod(kept, 2) == 0;
    return f32((odd ? kept + std::copysign(1.0, x) : kept) * place);
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
        exponents[k] =
            terms[k] == 0 || !std::isfinite(terms[k])
                ? 0
                : std::max(std::ilogb(x), addend ? Least().a : s.least.a) + std::max(std::ilogb(y), s.least.b);
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
        if (tame && are_tame(next, least))
            tame_step<false>(next);
        else if (tame && are_tame(next, {}))
            tame_step<true>(next);
        else
            wild_step(next);
    }
    if (fraction < FRACTION && cut == Cut::to_zero) shorten(rows, fraction, d);
}

}  // namespace sim
