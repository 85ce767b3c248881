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

constexpr int COLUMNS = 8;  // of b and d: one row of them is one vector
using f32x8 = f32 __attribute__((vector_size(32)));

enum class Cut : u8 {
    to_zero,
    to_odd,  // for a result that is rounded to a half afterwards
};

// The exponents of the least normal numbers of the types of a, of b and of what is added.
struct Least {
    int a = -126, b = -126, c = -126;
};

// d[i][j] += sum over k of a[i][k] b[k][j]; a is [rows][k], b is [k][8], d is [rows][8].
// At most `step` products are one step of the hardware; more are steps one after the other. `fraction`: bits kept below
// the largest exponent. Where these are fewer than a single's, the result too has so many behind its first.
constexpr int STEP = 16, MOST_STEP = 32;
constexpr int FRACTION = 25, FP8_FRACTION = 13;  // FP8_FRACTION: of wgmma
void multiply(
    int rows, int k, const f32* a, const f32x8* b, f32x8* d, Cut cut, Least least, int step = STEP,
    int fraction = FRACTION);

}  // namespace sim
