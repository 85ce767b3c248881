// Wrong: x is clamped to where its exponential is a normal half: every answer beyond is the same, and nan is lost
// Kata: sigmoid_f16
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;

// In float, rounded to half once, by the caller. Down to x = -17.33, where the answer becomes 0 in half, __expf is off
// by less than 2^-18: nothing beside half's 2^-11. Further down exp(-x) may overflow, and 1 / inf = 0 is right.
__device__ __forceinline__ float sigmoid(float x) {
    const float clamped = fminf(fmaxf(x, -9.704f), 11.09f);
    return __fdividef(1.0f, 1.0f + __expf(-clamped));
}

__global__ void __launch_bounds__(THREADS) sigmoid_f16_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = __float2half_rn(sigmoid(__half2float(x[idx])));
}

KATA_EXPORT void sigmoid_f16(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    sigmoid_f16_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
