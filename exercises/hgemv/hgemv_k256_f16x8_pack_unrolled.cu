// hgemv_k256_f16x8_pack_unrolled: y = A x, one warp per row of A, 128-bit loads, four in flight
//
// Shapes     A: [M, K], x: [K], y: [M] f16, row-major, contiguous, 16-byte aligned bases, any M, K >= 0; K = 0: y is 0
// Technique  a step of a warp is 1024 columns: each lane has four vectors of A and of x in flight
// New        over hgemv_k256_f16x8_pack: all loads of a step before its first product, and the registers for it
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int ROWS = THREADS / WARP_SIZE;  // rows per block, one per warp
constexpr int UNROLL = 4;                  // vectors of A, and of x, that a lane has in flight at once
constexpr int MIN_BLOCKS = 4;  // per SM: allows 64 registers per thread. By default nvcc uses fewer and loads late
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
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS) hgemv_k256_f16x8_pack_unrolled_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ x,  // [K]
    half* __restrict__ y,        // [M]
    int M, int K) {
    constexpr int VEC = sizeof(Pack) / sizeof(half);
    constexpr int STEP = WARP_SIZE * VEC;  // columns that one vector per lane covers
    const int lane_id = threadIdx.x % WARP_SIZE;
    // Offsets into A are 64-bit: M and K fit int, their product may not.
    const int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / WARP_SIZE;
    if (row >= M) return;
    const half* A_row = A + row * K;
    float sum = 0.0f;
    // TODO(1): global -> registers: load UNROLL vectors of A_row and of x, STEP columns apart, each with one load of
    //   type Pack, before the first product. Where no vector is left below K, the products are zero. Load A by __ldcs
    //   (streaming): each element of A is used once, but every row uses x. (~17 lines)
    // END TODO(1)
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) y[row] = __float2half(sum);
}

KATA_EXPORT void hgemv_k256_f16x8_pack_unrolled(
    const half* A, const half* x, half* y, int M, int K, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch. K = 0 is valid: the sums are empty
    const int blocks = (M - 1) / ROWS + 1;
    if (K % 8 == 0) {
        hgemv_k256_f16x8_pack_unrolled_kernel<uint4><<<blocks, THREADS, 0, stream>>>(A, x, y, M, K);
    } else {
        hgemv_k256_f16x8_pack_unrolled_kernel<half><<<blocks, THREADS, 0, stream>>>(A, x, y, M, K);
    }
}
