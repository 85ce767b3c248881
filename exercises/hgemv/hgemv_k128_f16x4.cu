// hgemv_k128_f16x4: y = A x, one warp per row of A, 64-bit loads
//
// Shapes     A: [M, K], x: [K], y: [M] f16, row-major, contiguous, 16-byte aligned bases, any M, K >= 0; K = 0: y is 0
// Technique  the lanes of a warp walk along their row in steps of 128, four adjacent columns each, then shuffle
// New        over hgemv_k32_f16: a quarter of the memory instructions, where 4 divides K
// Bound      memory bandwidth with enough rows, latency with fewer
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

// A load moves one Pack. VEC divides K, so a vector lies either wholly in the row or wholly outside it. Every row
// starts at a multiple of sizeof(Pack).
template <typename Pack>
__global__ void __launch_bounds__(THREADS) hgemv_k128_f16x4_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ x,  // [K]
    half* __restrict__ y,        // [M]
    int M, int K) {
    constexpr int VEC = sizeof(Pack) / sizeof(half);
    const int lane_id = threadIdx.x % WARP_SIZE;
    // Offsets into A are 64-bit: M and K fit int, their product may not.
    const int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / WARP_SIZE;
    if (row >= M) return;
    const half* A_row = A + row * K;
    float sum = 0.0f;
    // TODO(1): Add up A_row[k] * x[k] over all k of this lane: VEC adjacent columns per step, with one load of type
    //   Pack per operand. The lanes' vectors lie side by side. Read nothing at or past K. (~8 lines)
    // END TODO(1)
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) y[row] = __float2half(sum);
}

KATA_EXPORT void hgemv_k128_f16x4(const half* A, const half* x, half* y, int M, int K, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch. K = 0 is valid: the sums are empty
    const int blocks = (M - 1) / ROWS + 1;
    // TODO(2): Launch the kernel with 64-bit loads if every row starts at a multiple of 8 bytes, otherwise with loads
    //   of one half. (~5 lines)
    // END TODO(2)
}
