// Wrong: A is read as if its columns lay one behind the other
// Kata: sgemv_k32_f32
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: M=2, K=2
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int ROWS = THREADS / WARP_SIZE;  // rows per block, one for each warp
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");

// The sum over the warp's 32 lanes, in each of them. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

__global__ void __launch_bounds__(THREADS) sgemv_k32_f32_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ x,  // [K]
    float* __restrict__ y,        // [M]
    int M, int K) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    int64_t row = 0;  // offsets into A are 64-bit: M and K fit int, their product need not
    row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / WARP_SIZE;
    if (row >= M) return;
    float sum = 0.0f;
    for (int64_t k = lane_id; k < K; k += WARP_SIZE) sum += A[k * M + row] * x[k];
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) y[row] = sum;
}

KATA_EXPORT void sgemv_k32_f32(const float* A, const float* x, float* y, int M, int K, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch; K = 0 is none, there are sums of no products
    const int blocks = (M - 1) / ROWS + 1;
    sgemv_k32_f32_kernel<<<blocks, THREADS, 0, stream>>>(A, x, y, M, K);
}
