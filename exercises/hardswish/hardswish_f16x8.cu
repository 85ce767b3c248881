// hardswish_f16x8: y = x * min(max(x + 3, 0), 6) / 6, eight halves per thread in four steps of two
//
// Shapes     x, y: [n] f16, contiguous, 16-byte aligned base, any n >= 0
// Technique  four independent 32-bit accesses to each tensor per thread (half2, unrolled); scalar tail
// New        over hardswish_f16x2: four loads in flight at once; a quarter of the threads
// Bound      memory bandwidth; four times the instructions of a 128-bit access, which the L1 cache hides here
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread: four half2
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// Divide the clamp by 6 before you multiply by x: x * 6 would overflow for x above 10917. The product, not a branch,
// gives nan for nan (__hmax2 alone would drop it) and for -inf. Half precision is enough: where x + 3 cancels, it is
// exact.
__device__ __forceinline__ half2 hardswish(half2 x) {
    const half2 raised = __hadd2(x, __float2half2_rn(3.0f));
    const half2 clamped = __hmin2(__hmax2(raised, __float2half2_rn(0.0f)), __float2half2_rn(6.0f));
    return __hmul2(x, __hmul2(clamped, __float2half2_rn(1.0f / 6.0f)));
}

__global__ void __launch_bounds__(THREADS)
    hardswish_f16x8_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    // TODO(1): Where all VEC elements exist, compute them as four half2 in an unrolled loop, so that no load waits for
    //   another result. Guard the loads as well as the stores. (~5 lines)
    // END TODO(1)
    // TODO(2): The tail: let the thread with fewer than VEC elements compute them one by one. It must touch nothing at
    //   or past n. (~2 lines)
    // END TODO(2)
}

KATA_EXPORT void hardswish_f16x8(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    hardswish_f16x8_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
