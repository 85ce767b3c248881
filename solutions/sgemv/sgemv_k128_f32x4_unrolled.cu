// sgemv_k128_f32x4_unrolled: y = A x, one warp per row of A, 128-bit loads, four in flight
//
// Shapes     A: [M, K], x: [K], y: [M] f32, row-major, contiguous, 16-byte aligned bases, any M, K >= 0; K = 0: y is 0
// Technique  a step of a warp is 512 columns: each lane has four vectors of A and of x in flight
// New        over sgemv_k128_f32x4: all loads of a step before its first product, and the registers for it
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>

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
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS) sgemv_k128_f32x4_unrolled_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ x,  // [K]
    float* __restrict__ y,        // [M]
    int M, int K) {
    constexpr int VEC = sizeof(Pack) / sizeof(float);
    constexpr int STEP = WARP_SIZE * VEC;  // columns that one vector per lane covers
    const int lane_id = threadIdx.x % WARP_SIZE;
    // Offsets into A are 64-bit: M and K fit int, their product may not.
    const int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / WARP_SIZE;
    if (row >= M) return;
    const float* A_row = A + row * K;
    float sum = 0.0f;
    // TODO(1): global -> registers: load UNROLL vectors of A_row and of x, STEP columns apart, each with one load of
    //   type Pack, before the first product. Where no vector is left below K, the products are zero. Load A by __ldcs
    //   (streaming): each element of A is used once, but every row uses x. (~17 lines)
    for (int64_t k = lane_id * VEC; k < K; k += UNROLL * STEP) {
        alignas(Pack) float a_rmem[UNROLL][VEC] = {};
        alignas(Pack) float x_rmem[UNROLL][VEC] = {};
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            if (k + i * STEP < K) {
                *reinterpret_cast<Pack*>(a_rmem[i]) = __ldcs(reinterpret_cast<const Pack*>(A_row + k + i * STEP));
                *reinterpret_cast<Pack*>(x_rmem[i]) = *reinterpret_cast<const Pack*>(x + k + i * STEP);
            }
        }
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) sum += a_rmem[i][j] * x_rmem[i][j];
        }
    }
    // END TODO(1)
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) y[row] = sum;
}

KATA_EXPORT void sgemv_k128_f32x4_unrolled(
    const float* A, const float* x, float* y, int M, int K, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch. K = 0 is valid: the sums are empty
    const int blocks = (M - 1) / ROWS + 1;
    if (K % 4 == 0) {
        sgemv_k128_f32x4_unrolled_kernel<float4><<<blocks, THREADS, 0, stream>>>(A, x, y, M, K);
    } else {
        sgemv_k128_f32x4_unrolled_kernel<float><<<blocks, THREADS, 0, stream>>>(A, x, y, M, K);
    }
}
