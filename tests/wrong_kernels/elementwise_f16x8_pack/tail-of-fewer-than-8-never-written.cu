// Wrong: nobody does the elements after the last whole pack
// Kata: elementwise_f16x8_pack
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=1
// Says: never written
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread: 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

__global__ void __launch_bounds__(THREADS)
    elementwise_f16x8_pack_kernel(const half* __restrict__ a, const half* __restrict__ b, half* __restrict__ c, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (n - idx >= VEC) {
        // Every index into them is known once the loop is unrolled, so these live in registers. 16 bytes each, and
        // aligned as the 128-bit type that fills them demands.
        alignas(16) half2 a_rmem[VEC / 2];
        alignas(16) half2 b_rmem[VEC / 2];
        alignas(16) half2 c_rmem[VEC / 2];
        *reinterpret_cast<uint4*>(a_rmem) = *reinterpret_cast<const uint4*>(a + idx);
        *reinterpret_cast<uint4*>(b_rmem) = *reinterpret_cast<const uint4*>(b + idx);
#pragma unroll
        for (int i = 0; i < VEC / 2; ++i) c_rmem[i] = __hadd2(a_rmem[i], b_rmem[i]);
        *reinterpret_cast<uint4*>(c + idx) = *reinterpret_cast<const uint4*>(c_rmem);
    }
}

KATA_EXPORT void elementwise_f16x8_pack(const half* a, const half* b, half* c, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    elementwise_f16x8_pack_kernel<<<blocks, THREADS, 0, stream>>>(a, b, c, n);
}
