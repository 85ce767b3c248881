// hgemv_k256_f16x8_pack: y = A x, one warp per row of A, 128-bit loads
//
// Shapes     A: [M, K], x: [K], y: [M] f16, row-major, contiguous, 16-byte aligned bases, any M, K >= 0; K = 0: y is 0
// Technique  the lanes of a warp walk along their row in steps of 256, eight adjacent columns each, then shuffle
// New        over hgemv_k128_f16x4: half the memory instructions, where 8 divides K
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
__global__ void __launch_bounds__(THREADS) hgemv_k256_f16x8_pack_kernel(
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
    for (int64_t k = lane_id * VEC; k < K; k += WARP_SIZE * VEC) {
        alignas(Pack) half a_rmem[VEC];
        alignas(Pack) half x_rmem[VEC];
        *reinterpret_cast<Pack*>(a_rmem) = *reinterpret_cast<const Pack*>(A_row + k);
        *reinterpret_cast<Pack*>(x_rmem) = *reinterpret_cast<const Pack*>(x + k);
#pragma unroll
        for (int j = 0; j < VEC; ++j) sum += __half2float(a_rmem[j]) * __half2float(x_rmem[j]);
    }
    // END TODO(1)
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) y[row] = __float2half(sum);
}

KATA_EXPORT void hgemv_k256_f16x8_pack(const half* A, const half* x, half* y, int M, int K, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch. K = 0 is valid: the sums are empty
    const int blocks = (M - 1) / ROWS + 1;
    // TODO(2): Launch the kernel with 128-bit loads if every row starts at a multiple of 16 bytes, otherwise with loads
    //   of one half. (~5 lines)
    if (K % 8 == 0) {
        hgemv_k256_f16x8_pack_kernel<uint4><<<blocks, THREADS, 0, stream>>>(A, x, y, M, K);
    } else {
        hgemv_k256_f16x8_pack_kernel<half><<<blocks, THREADS, 0, stream>>>(A, x, y, M, K);
    }
    // END TODO(2)
}
