// Wrong: the lanes that have no row return, and the others' shuffles name all 32
// Kata: hgemv_k16_f16x8_pack
// Sim: deadlock
// Gpu: pass | wrong answer | time-out: the CUDA guide excuses lanes that have exited as long as nobody reads from one
// Line: // BUG
// Sizes: M=1, K=0
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int LANES = 2;               // lanes that share a row
constexpr int ROWS = THREADS / LANES;  // rows per block, 16 for each warp
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARP_SIZE % LANES == 0 && (LANES & (LANES - 1)) == 0, "no row may be shared by lanes of two warps");

// The sum over the lanes that share a row, in each of them. All 32 lanes of a warp must call it together.
__device__ __forceinline__ float row_reduce_sum(float sum) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);  // BUG
    return sum;
}

// Pack is what one load brings. Its VEC elements divide K: a vector lies in the row as a whole or not at all, and every
// row starts at a multiple of its size.
template <typename Pack>
__global__ void __launch_bounds__(THREADS) hgemv_k16_f16x8_pack_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ x,  // [K]
    half* __restrict__ y,        // [M]
    int M, int K) {
    constexpr int VEC = sizeof(Pack) / sizeof(half);
    const int lane_id = threadIdx.x % LANES;  // among the lanes of the row
    int64_t row = 0;                          // offsets into A are 64-bit: M and K fit int, their product need not
    row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / LANES;
    if (row >= M) return;
    const half* A_row = A + row * K;
    float sum = 0.0f;
    if (row < M) {
        for (int64_t k = lane_id * VEC; k < K; k += LANES * VEC) {
            alignas(Pack) half a_rmem[VEC];
            alignas(Pack) half x_rmem[VEC];
            *reinterpret_cast<Pack*>(a_rmem) = *reinterpret_cast<const Pack*>(A_row + k);
            *reinterpret_cast<Pack*>(x_rmem) = *reinterpret_cast<const Pack*>(x + k);
#pragma unroll
            for (int j = 0; j < VEC; ++j) sum += __half2float(a_rmem[j]) * __half2float(x_rmem[j]);
        }
    }
    sum = row_reduce_sum(sum);
    if (lane_id == 0 && row < M) y[row] = __float2half(sum);
}

KATA_EXPORT void hgemv_k16_f16x8_pack(const half* A, const half* x, half* y, int M, int K, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch; K = 0 is none, there are sums of no products
    const int blocks = (M - 1) / ROWS + 1;
    if (K % 8 == 0) {
        hgemv_k16_f16x8_pack_kernel<uint4><<<blocks, THREADS, 0, stream>>>(A, x, y, M, K);
    } else {
        hgemv_k16_f16x8_pack_kernel<half><<<blocks, THREADS, 0, stream>>>(A, x, y, M, K);
    }
}
