// Wrong: asks which x stay: no comparison with nan is true, so nan does not
// Kata: hardshrink_f32
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr float LAMBDA = 0.5f;

__device__ __forceinline__ float hardshrink(float x) {
    return x > LAMBDA || x < -LAMBDA ? x : 0.0f;
}

__global__ void __launch_bounds__(THREADS)
    hardshrink_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = hardshrink(x[idx]);
}

KATA_EXPORT void hardshrink_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    hardshrink_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
