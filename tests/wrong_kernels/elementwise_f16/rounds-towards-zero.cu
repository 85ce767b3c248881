// Wrong: the sum is right in float and then cut instead of rounded
// Kata: elementwise_f16
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    elementwise_f16_kernel(const half* __restrict__ a, const half* __restrict__ b, half* __restrict__ c, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) c[idx] = __float2half_rz(__half2float(a[idx]) + __half2float(b[idx]));
}

KATA_EXPORT void elementwise_f16(const half* a, const half* b, half* c, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    elementwise_f16_kernel<<<blocks, THREADS, 0, stream>>>(a, b, c, n);
}
