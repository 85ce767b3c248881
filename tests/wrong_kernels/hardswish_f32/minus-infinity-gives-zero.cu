// Wrong: a branch for x <= -3 gives 0 for -inf too, where the product gives nan
// Kata: hardswish_f32
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"

constexpr int THREADS = 256;

__device__ __forceinline__ float hardswish(float x) {
    if (x <= -3.0f) return 0.0f;
    return x >= 3.0f ? x : x * (x + 3.0f) * (1.0f / 6.0f);
}

__global__ void __launch_bounds__(THREADS)
    hardswish_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = hardswish(x[idx]);
}

KATA_EXPORT void hardswish_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    hardswish_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
