// Wrong: a block of 16 threads runs the butterfly of 32 lanes, half of which are not there
// Kata: warp_reduce_sum_f32
// Sim: wrong answer
// Gpu: pass | wrong answer | crash | time-out: PTX leaves it undefined what lanes that are not there hand over
// Sizes: warps=1
#include "kata.cuh"

constexpr int THREADS = 16;  // two elements per thread
constexpr int WARP_SIZE = 32;
constexpr unsigned FULL_MASK = 0xffffffff;

// The sum over the warp's 16 lanes, in every lane. All of them must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    warp_reduce_sum_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int warps) {
    const int lane_id = threadIdx.x;
    const int warp = blockIdx.x;
    // The whole warp leaves or none of it: the shuffles wait for every lane in their mask.
    if (warp >= warps) return;
    // 64 bits: warps * 32 may pass 2^31 - 1.
    const size_t idx = static_cast<size_t>(warp) * WARP_SIZE + lane_id;
    const float sum = warp_reduce_sum(x[idx] + x[idx + THREADS]);
    y[idx] = sum;
    y[idx + THREADS] = sum;
}

KATA_EXPORT void warp_reduce_sum_f32(const float* x, float* y, int warps, cudaStream_t stream) {
    if (warps == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = warps;
    warp_reduce_sum_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, warps);
}
