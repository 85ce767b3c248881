// warp_reduce_sum_bf16_f32: every lane of a warp gets the sum of the warp's 32 bfloat16 numbers, added in float
//
// Shapes     x: [warps, 32] bf16, contiguous, 16-byte aligned base, y: [warps, 32] f32, any warps >= 0
// Technique  butterfly: five exchanges between lanes whose numbers differ in one bit
// New        over warp_reduce_sum_bf16_bf16: one conversion before the butterfly: bfloat16 is the upper half of a float
// Bound      memory instructions: a warp's load is 64 bytes
#include "kata.cuh"
#include <cuda_bf16.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;  // warps per block
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
    // TODO(1): The butterfly in float: distances from 16 down to 1, and all 32 lanes in every step. No value may be
    //   rounded to bfloat16 in between: that would lose the bits. (~2 lines)
    // END TODO(1)
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    warp_reduce_sum_bf16_f32_kernel(const __nv_bfloat16* __restrict__ x, float* __restrict__ y, int warps) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int warp = blockIdx.x * WARPS + threadIdx.x / WARP_SIZE;  // this warp owns row `warp`, at most 2^31 - 1
    // TODO(2): Let each warp reduce one row: each lane loads one element of x, as a float, and stores the result in its
    //   own element of y. A warp past the last row accesses no memory. warps * 32 may exceed 2^31 - 1. (~3 lines)
    // END TODO(2)
}

KATA_EXPORT void warp_reduce_sum_bf16_f32(const __nv_bfloat16* x, float* y, int warps, cudaStream_t stream) {
    if (warps == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (warps - 1) / WARPS + 1;
    warp_reduce_sum_bf16_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, warps);
}
