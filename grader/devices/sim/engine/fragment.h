// fragment: registers of a warp <-> the matrix they hold
//
// One register of all lanes is a core matrix: eight rows of four lanes each, so
// lane l holds part l % 4 of row l / 4, and the row of a register file is that
// core matrix in row-major order. Operand a is made of core matrices, two rows
// of them in each tile of 16 rows; b is made of transposed ones; c and d have
// two elements of a row in each lane (PTX ISA 9.7.14.5, "Matrix multiply-accumulate
// operation using mma instruction": the figures of each shape). The fragments of
// wmma are the same, tile after tile; where they have more registers than the
// matrix has elements, the later ones repeat the first, as the hardware does.
#pragma once
#include "product.h"
#include "program.h"
#include "warp.h"

namespace sim {

// The fp8 types (PTX ISA 5.2.3): e4m3 has no infinity and one NaN, e5m2 is the upper byte of a half.
struct e4m3 {
    u8 bits;
};
struct e5m2 {
    u8 bits;
};
struct tf32 {
    u32 bits;
};

inline f32 widen(e4m3 x) {
    const u32 magnitude = x.bits & 0x7f;
    // In single precision's place the exponent is 120 too small.
    const f32 value = magnitude == 0x7f ? bit_cast<f32>(CANONICAL_NAN) : bit_cast<f32>(magnitude << 20) * 0x1p120f;
    return bit_cast<f32>(bit_cast<u32>(value) | u32(x.bits & 0x80) << 24);
}
inline f32 widen(e5m2 x) {
    return widen(f16{u16(x.bits << 8)});
}
inline f32 widen(tf32 x) {  // the hardware does not look at the last 13 bits
    return bit_cast<f32>(x.bits & ~0x1fffu);
}
inline s32 widen(s8 x) {
    return x;
}
inline s32 widen(u8 x) {
    return x;
}

constexpr int CORE = 8;  // rows of a core matrix

// `Word` is the type of one register of one lane.
template <class T, class Word>
constexpr int core_columns = 4 * int(sizeof(Word) / sizeof(T));

// Rows of the register file that an instruction names, from Program::fragments.
struct Registers {
    const Warp& warp;
    const s32* rows;

    template <class T>
    T* at(int i) const {
        return warp.row<T>(rows[i]);
    }
};

// Where core matrix `i` of an operand a begins: tiles of up to 16 rows, in each
// tile row by row within column by column.
struct Corner {
    int row, column;
};
constexpr Corner corner_of_a(int i, int rows, int columns, int core) {
    const int high = rows < 2 * CORE ? 1 : 2;  // core matrices on top of each other in a tile
    const int per_tile = high * (columns / core);
    const int tile = i / per_tile, rest = i % per_tile;
    return {tile * 2 * CORE + rest % high * CORE, rest / high * core};
}

// And of an operand b, whose core matrices are transposed and go down first.
constexpr Corner corner_of_b(int i, int rows, int core) {
    const int high = rows / core;
    return {i % high * core, i / high * COLUMNS};
}

// a as [rows][columns]
template <class T, class Word, int rows, int columns, class V>
void gather_a(Registers from, V* a) {
    constexpr int core = core_columns<T, Word>;
    for (int i = 0; i < rows / CORE * (columns / core); ++i) {
        const T* s = from.at<const T>(i);
        const Corner at = corner_of_a(i, rows, columns, core);
        for (int r = 0; r < CORE; ++r)
            for (int c = 0; c < core; ++c) a[(at.row + r) * columns + at.column + c] = V(widen(s[r * core + c]));
    }
}

// b as tiles of eight columns: [columns / 8][rows][8]
template <class T, class Word, int rows, int columns, class V>
void gather_b(Registers from, V* b) {
    constexpr int core = core_columns<T, Word>;
    for (int i = 0; i < rows / core * (columns / COLUMNS); ++i) {
        const T* s = from.at<const T>(i);
        const Corner at = corner_of_b(i, rows, core);
        V* tile = b + at.column * rows + at.row * COLUMNS;
        V flat[CORE * core];
        for (int e = 0; e < CORE * core; ++e) flat[e] = V(widen(s[e]));
        for (int k = 0; k < core; ++k)
            for (int n = 0; n < CORE; ++n) tile[k * COLUMNS + n] = flat[n * core + k];
    }
}

// ---- c and d, as tiles of eight columns: [columns / 8][rows][8]

// Their core matrices have the order of a's. Of a type with two elements in each register, one register holds
// such a matrix; else two do, with the even columns and the odd ones.

template <class T, int rows, int columns, class V>
void gather_c(Registers from, V* c) {
    for (int i = 0; i < rows / CORE * (columns / COLUMNS); ++i) {
        const Corner at = corner_of_a(i, rows, columns, COLUMNS);
        V* to = c + at.column * rows + at.row * COLUMNS;
        if constexpr (sizeof(T) == 2) {
            const T* s = from.at<const T>(i);
            for (int e = 0; e < CORE * COLUMNS; ++e) to[e] = V(widen(s[e]));
        } else {
            const T *even = from.at<const T>(2 * i), *odd = from.at<const T>(2 * i + 1);
            for (int l = 0; l < LANES; ++l) to[2 * l] = V(even[l]), to[2 * l + 1] = V(odd[l]);
        }
    }
}

// A sum that is rounded to a half's zero loses its sign.
template <class T>
T narrow_sum(f32 sum) {
    const T rounded = narrow<T>(sum);
    return {u16(rounded.bits == 0x8000 ? 0 : rounded.bits)};
}

// `converted`: the sums are single precision, and an instruction of its own converts them.
template <class T, int rows, int columns, bool converted = false, class V>
void scatter_d(Registers to, const V* d) {
    for (int i = 0; i < rows / CORE * (columns / COLUMNS); ++i) {
        const Corner at = corner_of_a(i, rows, columns, COLUMNS);
        const V* from = d + at.column * rows + at.row * COLUMNS;
        if constexpr (sizeof(T) == 2) {
            T* t = to.at<T>(i);
            for (int e = 0; e < CORE * COLUMNS; ++e) t[e] = converted ? narrow<T>(from[e]) : narrow_sum<T>(from[e]);
        } else {
            T *even = to.at<T>(2 * i), *odd = to.at<T>(2 * i + 1);
            for (int l = 0; l < LANES; ++l) even[l] = T(from[2 * l]), odd[l] = T(from[2 * l + 1]);
        }
    }
}

}  // namespace sim
