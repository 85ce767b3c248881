// warp_reduce_sum_f32: every lane of a warp gets the sum of the warp's 32 floats
//
// Shapes     x: [warps, 32] f32, contiguous, 16-byte aligned base, y: [warps, 32] f32, any warps >= 0
// Technique  butterfly: five exchanges between lanes whose numbers differ in one bit
// New        over elementwise_f32: lanes exchange registers, without memory and without a barrier
// Bound      memory bandwidth: ten arithmetic instructions per 256 bytes of a warp
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;  // warps per block
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
    // TODO(1): Halve the distance between partners in each step, from 16 down to 1. In every step each lane adds its
    //   partner's sum, and all 32 lanes take part. (~2 lines)
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    // END TODO(1)
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    warp_reduce_sum_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int warps) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int warp = blockIdx.x * WARPS + threadIdx.x / WARP_SIZE;  // this warp owns row `warp`, at most 2^31 - 1
    // TODO(2): Let each warp reduce one row: each lane loads one element of x and stores the result in its own element
    //   of y. A warp past the last row accesses no memory. warps * 32 may exceed 2^31 - 1. (~3 lines)
    // The whole warp returns or no lane of it: the shuffles wait for every lane in their mask.
    if (warp >= warps) return;
    // 64 bits: warps * 32 may exceed 2^31 - 1.
    const size_t idx = static_cast<size_t>(warp) * WARP_SIZE + lane_id;
    y[idx] = warp_reduce_sum(x[idx]);
    // END TODO(2)
}

KATA_EXPORT void warp_reduce_sum_f32(const float* x, float* y, int warps, cudaStream_t stream) {
    if (warps == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (warps - 1) / WARPS + 1;
    warp_reduce_sum_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, warps);
}
