// Wrong: a pair becomes 0 only where both of its halves do
// Kata: hardshrink_f16x2
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=2
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 2;                    // elements per thread: half2 is 4 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block
constexpr float LAMBDA = 0.5f;

__device__ __forceinline__ half2 hardshrink(half2 x) {
    return __hble2(__habs2(x), __float2half2_rn(LAMBDA)) ? __float2half2_rn(0.0f) : x;
}

__global__ void __launch_bounds__(THREADS)
    hardshrink_f16x2_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (n - idx >= VEC) {
        *reinterpret_cast<half2*>(y + idx) = hardshrink(*reinterpret_cast<const half2*>(x + idx));
    }
    // The ragged end: one half, in both places of a half2.
    if (n - idx < VEC) {
        for (int i = idx; i < n; ++i) y[i] = __low2half(hardshrink(__half2half2(x[i])));
    }
}

KATA_EXPORT void hardshrink_f16x2(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    hardshrink_f16x2_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
