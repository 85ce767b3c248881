// Wrong: the butterfly begins at a distance of 8
// Kata: warp_reduce_sum_f32
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: warps=1
// Says: every element\b
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;  // warps per block
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 4; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    warp_reduce_sum_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int warps) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int warp = blockIdx.x * WARPS + threadIdx.x / WARP_SIZE;  // this warp owns row `warp`, at most 2^31 - 1
    // The whole warp leaves or none of it: the shuffles wait for every lane in their mask.
    if (warp >= warps) return;
    // 64 bits: warps * 32 may pass 2^31 - 1.
    const size_t idx = static_cast<size_t>(warp) * WARP_SIZE + lane_id;
    y[idx] = warp_reduce_sum(x[idx]);
}

KATA_EXPORT void warp_reduce_sum_f32(const float* x, float* y, int warps, cudaStream_t stream) {
    if (warps == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (warps - 1) / WARPS + 1;
    warp_reduce_sum_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, warps);
}
