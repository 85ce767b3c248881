// Wrong: expf(x) - 1 loses the digits of x near 0
// Kata: elu_f32
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"

constexpr int THREADS = 256;

__device__ __forceinline__ float elu(float x) {
    return x > 0.0f ? x : expf(x) - 1.0f;
}

__global__ void __launch_bounds__(THREADS) elu_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    // The last block ends at most at 2^31 - 1, because THREADS divides 2^31: int holds every idx.
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = elu(x[idx]);
}

KATA_EXPORT void elu_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    elu_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
