// Wrong: every store has its guard, the loads have none
// Kata: hardswish_f16x8
// Sim: out of bounds
// Gpu: not shown: what lies past the end can be read, and nobody stores it
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread: four half2
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// The clamp is divided by 6 before it meets x: x * 6 would overflow for x above 10917. The product, and not a branch,
// makes nan of nan (__hmax2 alone would drop it) and of -inf. Half is enough: where x + 3 cancels it is exact.
__device__ __forceinline__ half2 hardswish(half2 x) {
    const half2 raised = __hadd2(x, __float2half2_rn(3.0f));
    const half2 clamped = __hmin2(__hmax2(raised, __float2half2_rn(0.0f)), __float2half2_rn(6.0f));
    return __hmul2(x, __hmul2(clamped, __float2half2_rn(1.0f / 6.0f)));
}

__global__ void __launch_bounds__(THREADS)
    hardswish_f16x8_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
#pragma unroll
    for (int i = idx; i < idx + VEC; i += 2) {
        const half2 y2 = hardswish(*reinterpret_cast<const half2*>(x + i));  // BUG
        if (i < n) y[i] = __low2half(y2);
        if (i + 1 < n) y[i + 1] = __high2half(y2);
    }
}

KATA_EXPORT void hardswish_f16x8(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    hardswish_f16x8_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
