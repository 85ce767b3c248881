// sgemv_k16_f32x4: y = A x, four lanes per row of A, 128-bit loads, for short rows
//
// Shapes     A: [M, K], x: [K], y: [M] f32, row-major, contiguous, 16-byte aligned bases, any M, K >= 0; K = 0: y is 0
// Technique  4 lanes walk along a row in steps of 16, four neighbours each; made for K = 16
// New        over sgemv_k16_f32: a warp works on 8 rows: one load brings them all, and two shuffles are left of four
// Bound      memory bandwidth at K = 16; for long rows a few lanes are too few
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int LANES = 4;               // lanes that share a row
constexpr int ROWS = THREADS / LANES;  // rows per block, 8 for each warp
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARP_SIZE % LANES == 0 && (LANES & (LANES - 1)) == 0, "no row may be shared by lanes of two warps");

// The sum over the lanes that share a row, in each of them. All 32 lanes of a warp must call it together.
__device__ __forceinline__ float row_reduce_sum(float sum) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// Pack is what one load brings. Its VEC elements divide K: a vector lies in the row as a whole or not at all, and every
// row starts at a multiple of its size.
template <typename Pack>
__global__ void __launch_bounds__(THREADS) sgemv_k16_f32x4_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ x,  // [K]
    float* __restrict__ y,        // [M]
    int M, int K) {
    constexpr int VEC = sizeof(Pack) / sizeof(float);
    const int lane_id = threadIdx.x % LANES;  // among the lanes of the row
    int64_t row = 0;                          // offsets into A are 64-bit: M and K fit int, their product need not
    row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / LANES;
    const float* A_row = A + row * K;
    float sum = 0.0f;
    // TODO(1): Add up A_row[k] * x[k] over all k that are this lane's, where the row exists: VEC neighbours in each
    //   step, by one load of type Pack of each operand, the vectors of the row's lanes side by side. (~10 lines)
    // END TODO(1)
    sum = row_reduce_sum(sum);
    if (lane_id == 0 && row < M) y[row] = sum;
}

KATA_EXPORT void sgemv_k16_f32x4(const float* A, const float* x, float* y, int M, int K, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch; K = 0 is none, there are sums of no products
    const int blocks = (M - 1) / ROWS + 1;
    // TODO(2): Launch the kernel with 128-bit loads where every row starts at a multiple of 16 bytes, and with loads of
    //   one float elsewhere. (~5 lines)
    // END TODO(2)
}
