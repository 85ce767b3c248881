// Wrong: the guard speaks of the first of two halves: an odd n is read and written one too far
// Kata: gelu_f16x2
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 2;                    // elements per thread: half2 is 4 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

constexpr float SQRT_2_OVER_PI = 0.7978845608f;

// In float, rounded to half once, by the caller: the error of the fast intrinsics is far below half's 2^-11 as long as
// the answer is not 0 in half. Where exp(-2u) is past 2^126, __fdividef gives 0, and 0 is right in half.
__device__ __forceinline__ float gelu(float x) {
    const float u = SQRT_2_OVER_PI * x * fmaf(0.044715f * x, x, 1.0f);
    return __fdividef(x, 1.0f + __expf(-2.0f * u));
}

__global__ void __launch_bounds__(THREADS) gelu_f16x2_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (idx < n) {
        const float2 x2 = __half22float2(*reinterpret_cast<const half2*>(x + idx));  // BUG
        *reinterpret_cast<half2*>(y + idx) = __floats2half2_rn(gelu(x2.x), gelu(x2.y));
    }
}

KATA_EXPORT void gelu_f16x2(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    gelu_f16x2_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
