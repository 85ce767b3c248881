// warp_reduce_max_f32: every lane of a warp gets the largest of the warp's 32 floats
//
// Shapes     x: [warps, 32] f32, contiguous, 16-byte aligned base, y: [warps, 32] f32, any warps >= 0
// Technique  butterfly: five exchanges between lanes whose numbers differ in one bit
// New        over warp_reduce_sum_f32: max in place of +, with torch's rule that nan always wins
// Bound      memory bandwidth
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;  // warps per block
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");

// The larger of a and b, or nan if either is nan.
__device__ __forceinline__ float max_or_nan(float a, float b) {
    float larger = b;
    // TODO(1): Take a where the result must be a. Every comparison with nan is false, and fmaxf drops a nan next to a
    //   number. Here a nan on either side must win. (~1 line)
    // END TODO(1)
    return larger;
}

// The largest of the warp's 32 lanes, in every lane, or nan if any is nan. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_max(float largest) {
    // TODO(2): The butterfly with another operation: distances from 16 down to 1. In every step each lane keeps the
    //   larger of its own value and its partner's. (~2 lines)
    // END TODO(2)
    return largest;
}

__global__ void __launch_bounds__(THREADS)
    warp_reduce_max_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int warps) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int warp = blockIdx.x * WARPS + threadIdx.x / WARP_SIZE;  // this warp owns row `warp`, at most 2^31 - 1
    // TODO(3): Let each warp reduce one row: each lane loads one element of x and stores the result in its own element
    //   of y. A warp past the last row accesses no memory. warps * 32 may exceed 2^31 - 1. (~3 lines)
    // END TODO(3)
}

KATA_EXPORT void warp_reduce_max_f32(const float* x, float* y, int warps, cudaStream_t stream) {
    if (warps == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (warps - 1) / WARPS + 1;
    warp_reduce_max_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, warps);
}
