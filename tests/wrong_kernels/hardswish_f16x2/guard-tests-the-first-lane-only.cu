// Wrong: the guard speaks of the first of two elements: for odd n the last pair is half outside
// Kata: hardswish_f16x2
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 2;                    // elements per thread: half2 is 4 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// The clamp is divided by 6 before it meets x: x * 6 would overflow for x above 10917. The product, and not a branch,
// makes nan of nan (__hmax2 alone would drop it) and of -inf. Half is enough: where x + 3 cancels it is exact.
__device__ __forceinline__ half2 hardswish(half2 x) {
    const half2 raised = __hadd2(x, __float2half2_rn(3.0f));
    const half2 clamped = __hmin2(__hmax2(raised, __float2half2_rn(0.0f)), __float2half2_rn(6.0f));
    return __hmul2(x, __hmul2(clamped, __float2half2_rn(1.0f / 6.0f)));
}

__global__ void __launch_bounds__(THREADS)
    hardswish_f16x2_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (idx < n) {
        *reinterpret_cast<half2*>(y + idx) = hardswish(*reinterpret_cast<const half2*>(x + idx));  // BUG
    }
}

KATA_EXPORT void hardswish_f16x2(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    hardswish_f16x2_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
