// Wrong: __hmax gives the number where the other side is nan
// Kata: relu_f16
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;

__device__ __forceinline__ half relu(half x) {
    return __hmax(x, __float2half_rn(0.0f));
}

__global__ void __launch_bounds__(THREADS) relu_f16_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = relu(x[idx]);
}

KATA_EXPORT void relu_f16(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    relu_f16_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
