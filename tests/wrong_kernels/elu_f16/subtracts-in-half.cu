// Wrong: exp(x) is rounded to half before 1 is taken away
// Kata: elu_f16
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;

__device__ __forceinline__ half elu(half x) {
    return __half2float(x) > 0.0f ? x : __hsub(hexp(x), __float2half_rn(1.0f));
}

__global__ void __launch_bounds__(THREADS) elu_f16_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = elu(x[idx]);
}

KATA_EXPORT void elu_f16(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    elu_f16_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
