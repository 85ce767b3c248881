// Wrong: every pair of stores has its guard, the loads have none
// Kata: gelu_f16x8
// Sim: out of bounds
// Gpu: not shown: what lies past the end can be read, and nobody stores it
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread: four half2
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

constexpr float SQRT_2_OVER_PI = 0.7978845608f;

// In float, rounded to half once, by the caller: the error of the fast intrinsics is far below half's 2^-11 as long as
// the answer is not 0 in half. Where exp(-2u) is past 2^126, __fdividef gives 0, and 0 is right in half.
__device__ __forceinline__ float gelu(float x) {
    const float u = SQRT_2_OVER_PI * x * fmaf(0.044715f * x, x, 1.0f);
    return __fdividef(x, 1.0f + __expf(-2.0f * u));
}

__global__ void __launch_bounds__(THREADS) gelu_f16x8_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
#pragma unroll
    for (int i = idx; i < idx + VEC; i += 2) {
        const float2 x2 = __half22float2(*reinterpret_cast<const half2*>(x + i));  // BUG
        const half2 y2 = __floats2half2_rn(gelu(x2.x), gelu(x2.y));
        if (i < n) y[i] = __low2half(y2);
        if (i + 1 < n) y[i + 1] = __high2half(y2);
    }
}

KATA_EXPORT void gelu_f16x8(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    gelu_f16x8_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
