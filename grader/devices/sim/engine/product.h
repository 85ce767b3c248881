// product: matrix products as the tensor cores of Hopper make them
//
// This is not IEEE arithmetic. The products of one step and the addend are
// exact; all are aligned to the largest exponent among them, cut off 25 bits
// below it, summed exactly, and rounded once: towards zero to single precision,
// to nearest to half (Fasi, Higham, Mikaitis, Pranesh 2021, "Numerical behavior
// of NVIDIA tensor cores"; Li et al. 2024, "FTTN"). The exponent of a denormal
// number is that of its type's least normal one. A result that is zero, or is
// rounded to zero, is +0, also where all of its terms are -0.
#pragma once
#include "scalar.h"

namespace sim {

constexpr int COLUMNS = 8;                       // of b and d
constexpr int STEP = 16, MOST_STEP = 32;         // products of one step of the hardware
constexpr int MOST_ROWS = 32;                    // of a and d
constexpr int FRACTION = 25, FP8_FRACTION = 13;  // bits below the largest exponent; FP8_FRACTION: of wgmma

enum class Cut : u8 {
    to_zero,
    to_odd,  // for a result that is rounded to a half afterwards
};

// The exponents of the least normal numbers of the types of a, of b and of what is added.
struct Least {
    int a = -126, b = -126, c = -126;
};

// How a step sums. `least`: as in Least, of what is added. Where `fraction` has fewer bits than a single, the result
// too has so many behind its first.
struct Sum {
    Cut cut;
    int least, fraction;
};

// Two rows are one, element by element in turn: row i, and row i + rows / 2. A vector of 16 numbers then has the eight
// columns of both.
constexpr int place_in_pairs(int rows, int columns, int i, int j) {
    const int half = rows / 2;
    return 2 * (i % half * columns + j) + i / half;
}

// a, [rows][k], ready for all that it is multiplied with: in pairs, with the exponent of each number.
struct Left {
    // `stride`: floats from row to row.
    void take(int rows, int k, int stride, const f32* a, int least);
    f32 at(int i, int p) const { return values[place_in_pairs(rows, k, i, p)]; }

    alignas(64) f32 values[MOST_ROWS * MOST_STEP];
    alignas(64) s16 exponents[MOST_ROWS * MOST_STEP];
    int rows, k, least;
    bool is_tame, is_zero;  // in the range for which there is a quick way
};

// b, [k][COLUMNS], with each number twice.
struct Right {
    void take(int k, const f32* b, int least);
    f32 at(int p, int j) const { return values[2 * (p * COLUMNS + j)]; }

    alignas(64) f32 values[2 * MOST_STEP * COLUMNS];
    alignas(64) s16 exponents[2 * MOST_STEP * COLUMNS];
    int least;
    bool is_tame, is_zero;
};

// d[i][j] += sum over k of a[i][k] b[k][j], in one step; d is [rows][COLUMNS] in pairs, aligned to 64 bytes.
void add_product(const Left& a, const Right& b, const Sum& how, f32* d);

// The same of plain arrays, in steps of at most `step` products: a is [rows][k], b is [k][COLUMNS], d [rows][COLUMNS].
void multiply(int rows, int k, const f32* a, const f32* b, f32* d, Cut cut, Least least, int step = STEP);

}  // namespace sim
