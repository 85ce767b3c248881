// Wrong: exp(-x) is inf below -88.7, and answers that are not 0 become 0
// Kata: swish_f32
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"

constexpr int THREADS = 256;

__device__ __forceinline__ float swish(float x) {
    return x / (1.0f + expf(-x));
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
