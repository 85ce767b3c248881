// hgemv_k32_f16: y = A x, one warp per row of A
//
// Shapes     A: [M, K], x: [K], y: [M] f16, row-major, contiguous, 16-byte aligned bases, any M, K >= 0; K = 0: y is 0
// Technique  the lanes of a warp walk along their row in steps of 32, then add up their sums by shuffles
// New        over sgemv_k32_f32: half elements; products and sums are kept in float
// Bound      memory latency: a load of two bytes per lane puts too few bytes in flight
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int ROWS = THREADS / WARP_SIZE;  // rows per block, one per warp
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");

// Every lane gets the sum over the warp's 32 lanes. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

__global__ void __launch_bounds__(THREADS) hgemv_k32_f16_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ x,  // [K]
    half* __restrict__ y,        // [M]
    int M, int K) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    int64_t row = 0;  // offsets into A are 64-bit: M and K fit int, their product may not
    // TODO(1): Give each warp its own row. A warp without a row returns as a whole. No warp waits for it: there is no
    //   barrier. (~2 lines)
    // END TODO(1)
    const half* A_row = A + row * K;
    float sum = 0.0f;
    // TODO(2): Add up A_row[k] * x[k] over all k of this lane, converted to float before the product. The lanes of a
    //   warp must load adjacent columns. Read nothing at or past K. (~1 line)
    // END TODO(2)
    // TODO(3): Add up the sums of the row's lanes, with all 32 in the shuffles, and store y[row] once. (~2 lines)
    // END TODO(3)
}

KATA_EXPORT void hgemv_k32_f16(const half* A, const half* x, half* y, int M, int K, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch. K = 0 is valid: the sums are empty
    const int blocks = (M - 1) / ROWS + 1;
    hgemv_k32_f16_kernel<<<blocks, THREADS, 0, stream>>>(A, x, y, M, K);
}
