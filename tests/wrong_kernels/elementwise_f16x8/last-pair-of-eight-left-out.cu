// Wrong: the unrolled loop does three pairs of four
// Kata: elementwise_f16x8
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=8
// Says: \b6 to 7\b|from 6\b
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread: four half2
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

__global__ void __launch_bounds__(THREADS)
    elementwise_f16x8_kernel(const half* __restrict__ a, const half* __restrict__ b, half* __restrict__ c, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (n - idx >= VEC) {
#pragma unroll
        for (int i = idx; i < idx + VEC - 2; i += 2) {
            const half2 a2 = *reinterpret_cast<const half2*>(a + i);
            const half2 b2 = *reinterpret_cast<const half2*>(b + i);
            *reinterpret_cast<half2*>(c + i) = __hadd2(a2, b2);
        }
    }
    if (n - idx < VEC) {
        for (int i = idx; i < n; ++i) c[i] = __hadd(a[i], b[i]);
    }
}

KATA_EXPORT void elementwise_f16x8(const half* a, const half* b, half* c, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    elementwise_f16x8_kernel<<<blocks, THREADS, 0, stream>>>(a, b, c, n);
}
