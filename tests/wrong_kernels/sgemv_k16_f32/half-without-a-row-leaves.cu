// Wrong: the half of a warp that has no row returns, and the other half's shuffles name all 32 lanes
// Kata: sgemv_k16_f32
// Sim: deadlock
// Gpu: pass | wrong answer | time-out: the CUDA guide excuses lanes that have exited as long as nobody reads from one
// Line: // BUG
// Sizes: M=1, K=0
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int LANES = 16;              // lanes that share a row
constexpr int ROWS = THREADS / LANES;  // rows per block, two for each warp
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARP_SIZE % LANES == 0 && (LANES & (LANES - 1)) == 0, "no row may be shared by lanes of two warps");

// The sum over the lanes that share a row, in each of them. All 32 lanes of a warp must call it together.
__device__ __forceinline__ float row_reduce_sum(float sum) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);  // BUG
    return sum;
}

__global__ void __launch_bounds__(THREADS) sgemv_k16_f32_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ x,  // [K]
    float* __restrict__ y,        // [M]
    int M, int K) {
    const int lane_id = threadIdx.x % LANES;  // among the lanes of the row
    int64_t row = 0;                          // offsets into A are 64-bit: M and K fit int, their product need not
    row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / LANES;
    if (row >= M) return;
    const float* A_row = A + row * K;
    float sum = 0.0f;
    if (row < M) {
        for (int64_t k = lane_id; k < K; k += LANES) sum += A_row[k] * x[k];
    }
    sum = row_reduce_sum(sum);
    if (lane_id == 0 && row < M) y[row] = sum;
}

KATA_EXPORT void sgemv_k16_f32(const float* A, const float* x, float* y, int M, int K, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch; K = 0 is none, there are sums of no products
    const int blocks = (M - 1) / ROWS + 1;
    sgemv_k16_f32_kernel<<<blocks, THREADS, 0, stream>>>(A, x, y, M, K);
}
