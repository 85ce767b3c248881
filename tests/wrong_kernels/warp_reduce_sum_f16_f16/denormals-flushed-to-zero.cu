// Wrong: a sum below the smallest normal half becomes 0
// Kata: warp_reduce_sum_f16_f16
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: warps=1
// Says: every element\b
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;  // warps per block
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ half warp_reduce_sum(half sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
        // A shuffle moves 32-bit registers: the partner's sum travels as its 16 bits.
        const int bits = __shfl_xor_sync(FULL_MASK, __half_as_ushort(sum), offset);
        sum = __hadd(sum, __ushort_as_half(bits));
        if (fabsf(__half2float(sum)) < 0x1p-14f) sum = __float2half(0.0f);
    }
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    warp_reduce_sum_f16_f16_kernel(const half* __restrict__ x, half* __restrict__ y, int warps) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int warp = blockIdx.x * WARPS + threadIdx.x / WARP_SIZE;  // this warp owns row `warp`, at most 2^31 - 1
    // The whole warp leaves or none of it: the shuffles wait for every lane in their mask.
    if (warp >= warps) return;
    // 64 bits: warps * 32 may pass 2^31 - 1.
    const size_t idx = static_cast<size_t>(warp) * WARP_SIZE + lane_id;
    y[idx] = warp_reduce_sum(x[idx]);
}

KATA_EXPORT void warp_reduce_sum_f16_f16(const half* x, half* y, int warps, cudaStream_t stream) {
    if (warps == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (warps - 1) / WARPS + 1;
    warp_reduce_sum_f16_f16_kernel<<<blocks, THREADS, 0, stream>>>(x, y, warps);
}
