// Wrong: what is not set to 0 moves towards 0 by LAMBDA: that is softshrink
// Kata: hardshrink_f16
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=1
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr float LAMBDA = 0.5f;

// Asks which x become 0, not which stay: every comparison with nan is false, and nan must stay.
__device__ __forceinline__ half hardshrink(half x) {
    return __hle(__habs(x), __float2half(LAMBDA))
               ? __float2half(0.0f)
               : __hsub(x, __float2half(__hgt(x, __float2half(0.0f)) ? LAMBDA : -LAMBDA));
}

__global__ void __launch_bounds__(THREADS)
    hardshrink_f16_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) y[idx] = hardshrink(x[idx]);
}

KATA_EXPORT void hardshrink_f16(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    hardshrink_f16_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
