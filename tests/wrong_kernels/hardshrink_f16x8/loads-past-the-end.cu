// Wrong: every store has its guard, the loads have none
// Kata: hardshrink_f16x8
// Sim: out of bounds
// Gpu: not shown: what lies past the end can be read, and nobody stores it
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread: four half2
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
    hardshrink_f16x8_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
#pragma unroll
    for (int i = idx; i < idx + VEC; i += 2) {
        const half2 y2 = hardshrink(*reinterpret_cast<const half2*>(x + i));  // BUG
        if (i < n) y[i] = __low2half(y2);
        if (i + 1 < n) y[i + 1] = __high2half(y2);
    }
}

KATA_EXPORT void hardshrink_f16x8(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    hardshrink_f16x8_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
