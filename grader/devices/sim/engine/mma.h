// mma: d = a b + c on fragments, for mma.sync and wmma.mma
#pragma once
#include "fragment.h"
#include "matrix.h"
#include "block.h"

namespace sim {

enum class Overflow : u8 { wrap, saturate };

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

// One tile of eight columns: a is [rows][k], b is [k][8], d is [rows][8].
inline void multiply_tile(int rows, int k, const f32* a, const f32* b, f32* d, Cut cut, Overflow) {
    multiply(rows, k, a, reinterpret_cast<const f32x8*>(b), reinterpret_cast<f32x8*>(d), cut);
}

// Each product is added by a fused multiply-add of its own.
inline void multiply_tile(int rows, int k, const f64* a, const f64* b, f64* d, Cut, Overflow) {
    for (int i = 0; i < rows; ++i)
        for (int p = 0; p < k; ++p)
            for (int j = 0; j < COLUMNS; ++j)
                d[i * COLUMNS + j] = fused(a[i * k + p], b[p * COLUMNS + j], d[i * COLUMNS + j]);
}

inline void multiply_tile(int rows, int k, const s32* a, const s32* b, s32* d, Cut, Overflow overflow) {
    for (int i = 0; i < rows; ++i) {
        s32 products[COLUMNS] = {};
        for (int p = 0; p < k; ++p)
            for (int j = 0; j < COLUMNS; ++j) products[j] += a[i * k + p] * b[p * COLUMNS + j];
        for (int j = 0; j < COLUMNS; ++j) {
            s32& place = d[i * COLUMNS + j];
            const s64 sum = s64(place) + products[j];
            const s64 low = std::numeric_limits<s32>::min(), high = std::numeric_limits<s32>::max();
            place = overflow == Overflow::wrap ? s32(u32(sum)) : s32(sum < low ? low : sum > high ? high : sum);
        }
    }
}

// a of type A, b of type B, c of type C, d of type D; `least` registers at least for each of a and b.
template <class A, class B, class C, class D, int M, int N, int K, int least = 0, Overflow overflow = Overflow::wrap>
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
        const s32* rows = warp.block->program->fragments.data() + in.operand[0];
        const s32 *a_rows = rows + GROUPS[0].count, *b_rows = a_rows + GROUPS[1].count;
        alignas(64) Sum a[M * K], b[K * N], d[M * N];
        gather_a<A, Word, M, K>({warp, a_rows}, a);
        gather_b<B, Word, K, N>({warp, b_rows}, b);
        gather_c<C, M, N>({warp, b_rows + GROUPS[2].count}, d);
        constexpr Cut cut = sizeof(D) == 2 ? Cut::to_odd : Cut::to_zero;
        for (int tile = 0; tile < N / COLUMNS; ++tile)
            multiply_tile(M, K, a, b + tile * K * COLUMNS, d + tile * M * COLUMNS, cut, overflow);
        scatter_d<D, M, N>({warp, rows}, d);
    }

    static void build(Decoder& d, const ptx::Instruction& in, const Row& row) {
        d.require(in, 4);
        Instruction out = meeting(d, in, row);
        std::vector<s32> sources, rows;
        for (size_t i = 1; i < 4; ++i) append_sources(d, in.operands[i], GROUPS[i], sources);
        append_destinations(d, in.operands[0], GROUPS[0], rows);
        rows.insert(rows.end(), sources.begin(), sources.end());
        out.operand[0] = d.fragments(rows);
        d.emit(out);
    }

    static void add(Table& t, const std::string& form) { t.add(form, {run, {}}, build, Flow::meet); }
};

}  // namespace sim
