// Wrong: every store has its guard, the loads have none
// Kata: swish_f16x8
// Sim: out of bounds
// Gpu: not shown: what lies past the end can be read, and nobody stores it
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread: four half2
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// x * sigmoid(x) in float, by fast intrinsics: off by 3e-6 of itself at most, where rounding to half makes 5e-4.
// exp(-x) overflows below -88.7, and the quotient becomes 0; so is the answer as a half, from -20.4 on.
__device__ __forceinline__ float swish(float x) {
    return __fdividef(x, 1.0f + __expf(-x));
}

__global__ void __launch_bounds__(THREADS) swish_f16x8_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
#pragma unroll
    for (int i = idx; i < idx + VEC; i += 2) {
        const float2 x2 = __half22float2(*reinterpret_cast<const half2*>(x + i));  // BUG
        if (i < n) y[i] = __float2half(swish(x2.x));
        if (i + 1 < n) y[i + 1] = __float2half(swish(x2.y));
    }
}

KATA_EXPORT void swish_f16x8(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    swish_f16x8_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
