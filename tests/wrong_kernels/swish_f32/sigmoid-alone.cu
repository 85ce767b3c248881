// Wrong: the factor x is forgotten
// Kata: swish_f32
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=1
#include "kata.cuh"

constexpr int THREADS = 256;

__device__ __forceinline__ float swish(float x) {
    const float e = expf(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

__global__ void __launch_bounds__(THREADS) swish_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = swish(x[idx]);
}

KATA_EXPORT void swish_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    swish_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
