// Wrong: 0.5 and -0.5 keep their value
// Kata: hardshrink_f32
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=1
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr float LAMBDA = 0.5f;

// Asks which x become 0, not which stay: every comparison with nan is false, and nan must stay.
__device__ __forceinline__ float hardshrink(float x) {
    return fabsf(x) < LAMBDA ? 0.0f : x;
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
