// Wrong: exp(-x) passes the largest half below -11, and answers that are not 0 become 0
// Kata: swish_f16
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;

__device__ __forceinline__ half swish(half x) {
    return __hdiv(x, __hadd(__float2half(1.0f), hexp(__hneg(x))));
}

__global__ void __launch_bounds__(THREADS) swish_f16_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = swish(x[idx]);
}

KATA_EXPORT void swish_f16(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    swish_f16_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
