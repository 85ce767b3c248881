// Wrong: the tanh form, which differs from the definition
// Kata: gelu_erf_f32
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"

constexpr int THREADS = 256;

__device__ __forceinline__ float gelu_erf(float x) {
    const float u = 0.7978845608f * x * fmaf(0.044715f * x, x, 1.0f);
    return x / (1.0f + expf(-2.0f * u));
}

__global__ void __launch_bounds__(THREADS)
    gelu_erf_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    // The last block ends at most at 2^31 - 1, because THREADS divides 2^31: int holds every idx.
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = gelu_erf(x[idx]);
}

KATA_EXPORT void gelu_erf_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    gelu_erf_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
