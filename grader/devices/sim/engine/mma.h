// mma: d = a b + c on fragments, for mma.sync and wmma.mma
#pragma once
#include <algorithm>

#include "block.h"
#include "fragment.h"
#include "matrix.h"

namespace sim {

enum class Overflow : u8 { wrap, saturate };

// The order in which Hopper sums the products of one instruction.
enum class Order : u8 {
    plain,  // up to 16 at once, beginning with c
    fours,  // four at once, beginning with c
    pairs,  // of each four in a register the first two, 16 at once; then the last two; c is added last, to nearest
};

// How a type's products are summed: the type of the sums, and of one register.
template <class T>
struct Kind {
    using Sum = f32;
    using Word = u32;
};
template <>
struct Kind<s8> {
    using Sum = s32;
    using Word = u32;
};
template <>
struct Kind<u8> : Kind<s8> {};
template <>
struct Kind<f64> {
    using Sum = f64;
    using Word = f64;
};

// The exponent of a type's least normal number.
template <class T>
inline constexpr int LEAST_EXPONENT = -126;
template <>
inline constexpr int LEAST_EXPONENT<f16> = -14;
template <>
inline constexpr int LEAST_EXPONENT<e5m2> = -14;
template <>
inline constexpr int LEAST_EXPONENT<e4m3> = -6;

// How a product is made, beside its types.
struct Manner {
    Cut cut;
    Overflow overflow;
    Order order;
    Least least = {};
};

// The place of each k in Order::pairs.
constexpr int paired(int k, int p) {
    return p / 4 * 2 + p % 2 + (p % 4 < 2 ? 0 : k / 2);
}

// mma.sync of fp8 multiplies halves: there e4m3 has no denormal numbers.
constexpr Least AS_HALVES = {LEAST_EXPONENT<f16>, LEAST_EXPONENT<f16>};

inline void multiply_pairs(int rows, int k, const f32* a, const f32* b, f32* d, Cut cut) {
    constexpr int MOST_ROWS = 16, MOST = 32;
    alignas(64) f32 a_paired[MOST_ROWS * MOST], b_paired[MOST * COLUMNS], sum[MOST_ROWS * COLUMNS] = {};
    for (int p = 0; p < k; ++p) {
        for (int i = 0; i < rows; ++i) a_paired[i * k + paired(k, p)] = a[i * k + p];
        std::copy(b + p * COLUMNS, b + (p + 1) * COLUMNS, b_paired + paired(k, p) * COLUMNS);
    }
    multiply(rows, k, a_paired, b_paired, sum, cut, AS_HALVES);
    for (int i = 0; i < rows * COLUMNS; ++i) d[i] += sum[i];
}

// One tile of eight columns: a is [rows][k], b is [k][8], d is [rows][8].
inline void multiply_tile(int rows, int k, const f32* a, const f32* b, f32* d, Manner manner) {
    if (manner.order == Order::pairs) return multiply_pairs(rows, k, a, b, d, manner.cut);
    const int step = manner.order == Order::fours ? 4 : STEP;
    multiply(rows, k, a, b, d, manner.cut, manner.least, step);
}

// Each product is added by a fused multiply-add of its own.
inline void multiply_tile(int rows, int k, const f64* a, const f64* b, f64* d, Manner) {
    for (int i = 0; i < rows; ++i)
        for (int p = 0; p < k; ++p)
            for (int j = 0; j < COLUMNS; ++j)
                d[i * COLUMNS + j] = fused(a[i * k + p], b[p * COLUMNS + j], d[i * COLUMNS + j]);
}

inline void multiply_tile(int rows, int k, const s32* a, const s32* b, s32* d, Manner manner) {
    for (int i = 0; i < rows; ++i) {
        s32 products[COLUMNS] = {};
        for (int p = 0; p < k; ++p)
            for (int j = 0; j < COLUMNS; ++j) products[j] += a[i * k + p] * b[p * COLUMNS + j];
        for (int j = 0; j < COLUMNS; ++j) {
            s32& place = d[i * COLUMNS + j];
            const s64 sum = s64(place) + products[j];
            const s64 low = std::numeric_limits<s32>::min(), high = std::numeric_limits<s32>::max();
            place = manner.overflow == Overflow::wrap ? s32(u32(sum)) : s32(sum < low ? low : sum > high ? high : sum);
        }
    }
}

// a of type A, b of type B, c of type C, d of type D; `least` registers at least for each of a and b.
template <
    class A, class B, class C, class D, int M, int N, int K, int least = 0, Overflow overflow = Overflow::wrap,
    Order order = Order::plain>
struct Product {
    using Sum = typename Kind<A>::Sum;
    using Word = typename Kind<A>::Word;

    static constexpr int registers(int elements, size_t element, size_t word) {
        const int needed = elements / LANES * int(element) / int(word);
        return needed < least ? least : needed;
    }
    template <class T>
    static constexpr Group sums() {
        const int elements = M * N / LANES;
        return sizeof(T) == 2 ? Group{shape_of<u32>(), elements / 2} : Group{shape_of<T>(), elements};
    }
    static constexpr Group GROUPS[4] = {
        sums<D>(),
        {shape_of<Word>(), registers(M * K, sizeof(A), sizeof(Word))},
        {shape_of<Word>(), registers(K * N, sizeof(B), sizeof(Word))},
        sums<C>()};

    static void run(Warp& warp, const Instruction& in, Mask mask) {
        require_whole_warp(warp, in, mask);
        const s32* d = warp.block->program->fragments.data() + in.operand[0];
        const s32 *a = d + GROUPS[0].count, *b = a + GROUPS[1].count, *c = b + GROUPS[2].count;
        // A tile that is wider than high is the transposed one of the transposed operands.
        if constexpr (M < N)
            Product<B, A, C, D, N, M, K, least, overflow, order>::multiply_fragments(warp, {d, b, a, c});
        else
            multiply_fragments(warp, {d, a, b, c});
    }

    struct Rows {
        const s32 *d, *a, *b, *c;
    };
    static void multiply_fragments(Warp& warp, Rows rows) {
        alignas(64) Sum a[M * K], b[K * N], d[M * N];
        gather_a<A, Word, M, K>({warp, rows.a}, a);
        gather_b<B, Word, K, N>({warp, rows.b}, b);
        gather_c<C, M, N>({warp, rows.c}, d);
        constexpr bool converted = sizeof(D) < sizeof(C);
        constexpr Manner manner{
            sizeof(D) == 2 && !converted ? Cut::to_odd : Cut::to_zero,
            overflow,
            order,
            {LEAST_EXPONENT<A>, LEAST_EXPONENT<B>, LEAST_EXPONENT<C>}};
        for (int tile = 0; tile < N / COLUMNS; ++tile)
            multiply_tile(M, K, a, b + tile * K * COLUMNS, d + tile * M * COLUMNS, manner);
        scatter_d<D, M, N, converted>({warp, rows.d}, d);
    }

    static void lower(Decoder& d, const ptx::Instruction& in, const OpcodeEntry& entry) {
        d.require(in, 4);
        Instruction out = warp_sync_instruction(d, in, entry);
        std::vector<s32> sources, rows;
        for (size_t i = 1; i < 4; ++i) append_sources(d, in.operands[i], GROUPS[i], sources);
        append_destinations(d, in.operands[0], GROUPS[0], rows);
        rows.insert(rows.end(), sources.begin(), sources.end());
        out.operand[0] = d.fragments(rows);
        d.emit(out);
    }

    static void add(Table& t, const std::string& form) { t.add(form, {run, {}}, lower, Flow::warp_sync); }
};

}  // namespace sim
