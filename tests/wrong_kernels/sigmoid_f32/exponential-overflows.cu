// Wrong: exp(-x) is inf below x = -88.72, and the answer 0 where it is a denormal number
// Kata: sigmoid_f32
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"

constexpr int THREADS = 256;

__device__ __forceinline__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

__global__ void __launch_bounds__(THREADS)
    sigmoid_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    // The last block ends at most at 2^31 - 1, because THREADS divides 2^31: int holds every idx.
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = sigmoid(x[idx]);
}

KATA_EXPORT void sigmoid_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    sigmoid_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
