// warp_reduce_sum_fp8_e5m2_f16: every lane of a warp gets the sum of the warp's 32 e5m2 bytes, added in half
//
// Shapes     x: [warps, 32] fp8_e5m2, contiguous, 16-byte aligned base, y: [warps, 32] f16, any warps >= 0
// Technique  butterfly: five exchanges between lanes whose numbers differ in one bit
// New        over warp_reduce_sum_fp8_e4m3_f16: the other format; a half has the same exponent, so inf stays inf
// Bound      memory instructions: a warp's load is 32 bytes
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cuda_fp8.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;  // warps per block
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ half warp_reduce_sum(half sum) {
    // TODO(1): The butterfly, all of it in half: five steps with distances from 16 down to 1. In each step every lane
    //   adds its partner's sum and rounds to 11 significant bits. (~4 lines)
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
        // A shuffle moves 32-bit registers: the partner's sum travels as its 16 bits.
        const int bits = __shfl_xor_sync(FULL_MASK, __half_as_ushort(sum), offset);
        sum = __hadd(sum, __ushort_as_half(bits));
    }
    // END TODO(1)
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    warp_reduce_sum_fp8_e5m2_f16_kernel(const __nv_fp8_e5m2* __restrict__ x, half* __restrict__ y, int warps) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int warp = blockIdx.x * WARPS + threadIdx.x / WARP_SIZE;  // this warp owns row `warp`, at most 2^31 - 1
    // TODO(2): Let each warp reduce one row: each lane loads one element of x, converted to half, and stores the result
    //   in its own element of y. A warp past the last row accesses no memory. warps * 32 may exceed 2^31 - 1.
    //   (~3 lines)
    // The whole warp returns or no lane of it: the shuffles wait for every lane in their mask.
    if (warp >= warps) return;
    // 64 bits: warps * 32 may exceed 2^31 - 1.
    const size_t idx = static_cast<size_t>(warp) * WARP_SIZE + lane_id;
    y[idx] = warp_reduce_sum(static_cast<half>(x[idx]));
    // END TODO(2)
}

KATA_EXPORT void warp_reduce_sum_fp8_e5m2_f16(const __nv_fp8_e5m2* x, half* y, int warps, cudaStream_t stream) {
    if (warps == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (warps - 1) / WARPS + 1;
    warp_reduce_sum_fp8_e5m2_f16_kernel<<<blocks, THREADS, 0, stream>>>(x, y, warps);
}
