// Wrong: the parabola goes on beyond 3
// Kata: hardswish_f16
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=1
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;

__device__ __forceinline__ half hardswish(half x) {
    const half clamped = __hmax(__hadd(x, __float2half(3.0f)), __float2half(0.0f));
    return __hmul(x, __hmul(clamped, __float2half(1.0f / 6.0f)));
}

__global__ void __launch_bounds__(THREADS)
    hardswish_f16_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = hardswish(x[idx]);
}

KATA_EXPORT void hardswish_f16(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    hardswish_f16_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
