// Wrong: x is clamped before the formula: gelu(100) is 88.38
// Kata: gelu_f32
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"

constexpr int THREADS = 256;

constexpr float SQRT_2_OVER_PI = 0.7978845608f;

__device__ __forceinline__ float gelu(float unclamped) {
    const float x = fminf(fmaxf(unclamped, -88.3762626647949f), 88.3762626647949f);
    const float u = SQRT_2_OVER_PI * x * fmaf(0.044715f * x, x, 1.0f);
    return x / (1.0f + expf(-2.0f * u));
}

__global__ void __launch_bounds__(THREADS) gelu_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    // The last block ends at most at 2^31 - 1, because THREADS divides 2^31: int holds every idx.
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = gelu(x[idx]);
}

KATA_EXPORT void gelu_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    gelu_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
