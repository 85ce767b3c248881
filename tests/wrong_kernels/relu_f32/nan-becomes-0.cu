// Wrong: fmaxf gives the number where the other side is nan
// Kata: relu_f32
// Sim: wrong answer
// Gpu: wrong answer
// Says: every .*\bnan\b.*no other
#include "kata.cuh"

constexpr int THREADS = 256;

__device__ __forceinline__ float relu(float x) {
    return fmaxf(x, 0.0f);
}

__global__ void __launch_bounds__(THREADS) relu_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    // The last block ends at most at 2^31 - 1, because THREADS divides 2^31: int holds every idx.
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = relu(x[idx]);
}

KATA_EXPORT void relu_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    relu_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
