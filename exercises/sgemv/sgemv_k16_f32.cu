// sgemv_k16_f32: y = A x, half a warp per row of A, for short rows
//
// Shapes     A: [M, K], x: [K], y: [M] f32, row-major, contiguous, 16-byte aligned bases, any M, K >= 0; K = 0: y is 0
// Technique  16 lanes walk along a row in steps of 16, and the shuffles stay among these 16; made for K = 16
// New        over sgemv_k32_f32: two rows per warp; either half may have no row, but both must shuffle
// Bound      instructions: at K = 16, four shuffles with an addition each per load of A
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int LANES = 16;              // lanes that share a row
constexpr int ROWS = THREADS / LANES;  // rows per block, two per warp
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARP_SIZE % LANES == 0 && (LANES & (LANES - 1)) == 0, "no row may be shared by lanes of two warps");

// Every lane gets the sum over the lanes that share its row. All 32 lanes of a warp must call it together.
__device__ __forceinline__ float row_reduce_sum(float sum) {
    // TODO(1): Add up among the row's own lanes. No exchange may cross to other lanes. (~2 lines)
    // END TODO(1)
    return sum;
}

__global__ void __launch_bounds__(THREADS) sgemv_k16_f32_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ x,  // [K]
    float* __restrict__ y,        // [M]
    int M, int K) {
    const int lane_id = threadIdx.x % LANES;  // among the lanes of the row
    int64_t row = 0;                          // offsets into A are 64-bit: M and K fit int, their product may not
    // TODO(2): Give each group of LANES lanes its own row. No lane returns: the other half of the warp may have a row.
    //   Its shuffles name all 32 lanes, and every lane in the mask must execute them. (~1 line)
    // END TODO(2)
    const float* A_row = A + row * K;
    float sum = 0.0f;
    // TODO(3): If the row exists, add up A_row[k] * x[k] over all k of this lane. The lanes of a row must load adjacent
    //   columns. Read nothing at or past K. (~3 lines)
    // END TODO(3)
    // TODO(4): Add up the sums of the row's lanes, with all 32 lanes of the warp in the shuffles. If the row exists,
    //   store y[row] once. (~2 lines)
    // END TODO(4)
}

KATA_EXPORT void sgemv_k16_f32(const float* A, const float* x, float* y, int M, int K, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch. K = 0 is valid: the sums are empty
    const int blocks = (M - 1) / ROWS + 1;
    sgemv_k16_f32_kernel<<<blocks, THREADS, 0, stream>>>(A, x, y, M, K);
}
