// Wrong: every step is rounded to half, and exp(-x) overflows below x = -11.09
// Kata: sigmoid_f16
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;

__device__ __forceinline__ half sigmoid(half x) {
    const half one = __float2half_rn(1.0f);
    return __hdiv(one, __hadd(one, hexp(__hneg(x))));
}

__global__ void __launch_bounds__(THREADS) sigmoid_f16_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = sigmoid(x[idx]);
}

KATA_EXPORT void sigmoid_f16(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    sigmoid_f16_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
