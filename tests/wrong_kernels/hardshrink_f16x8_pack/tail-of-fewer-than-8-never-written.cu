// Wrong: nobody does the elements after the last whole pack
// Kata: hardshrink_f16x8_pack
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=1
// Says: never written
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread: 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block
constexpr float LAMBDA = 0.5f;

// Asks which x become 0, not which stay: every comparison with nan is false, and nan must stay. The comparison gives 16
// ones or zeros for each half, so the bits of both are kept or cleared at once, without a branch.
__device__ __forceinline__ half2 hardshrink(half2 x) {
    const unsigned zeroed = __hle2_mask(__habs2(x), __float2half2_rn(LAMBDA));
    const unsigned kept = *reinterpret_cast<const unsigned*>(&x) & ~zeroed;
    return *reinterpret_cast<const half2*>(&kept);
}

__global__ void __launch_bounds__(THREADS)
    hardshrink_f16x8_pack_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (n - idx >= VEC) {
        // Every index into them is known once the loop is unrolled, so these live in registers. 16 bytes each, and
        // aligned as the 128-bit type that fills them demands.
        alignas(16) half2 x_rmem[VEC / 2];
        alignas(16) half2 y_rmem[VEC / 2];
        *reinterpret_cast<uint4*>(x_rmem) = *reinterpret_cast<const uint4*>(x + idx);
#pragma unroll
        for (int i = 0; i < VEC / 2; ++i) y_rmem[i] = hardshrink(x_rmem[i]);
        *reinterpret_cast<uint4*>(y + idx) = *reinterpret_cast<const uint4*>(y_rmem);
    }
}

KATA_EXPORT void hardshrink_f16x8_pack(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    hardshrink_f16x8_pack_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
