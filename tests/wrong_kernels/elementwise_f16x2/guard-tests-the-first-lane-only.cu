// Wrong: the guard speaks of the first of two elements: for odd n the last pair is half outside
// Kata: elementwise_f16x2
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 2;                    // elements per thread: half2 is 4 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

__global__ void __launch_bounds__(THREADS)
    elementwise_f16x2_kernel(const half* __restrict__ a, const half* __restrict__ b, half* __restrict__ c, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (idx < n) {
        const half2 a2 = *reinterpret_cast<const half2*>(a + idx);  // BUG
        const half2 b2 = *reinterpret_cast<const half2*>(b + idx);
        *reinterpret_cast<half2*>(c + idx) = __hadd2(a2, b2);
    }
}

KATA_EXPORT void elementwise_f16x2(const half* a, const half* b, half* c, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    elementwise_f16x2_kernel<<<blocks, THREADS, 0, stream>>>(a, b, c, n);
}
