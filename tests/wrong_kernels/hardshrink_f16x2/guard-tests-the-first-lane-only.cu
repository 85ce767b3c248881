// Wrong: the guard speaks of the first of two elements: for odd n the last pair is half outside
// Kata: hardshrink_f16x2
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 2;                    // elements per thread: half2 is 4 bytes
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
    hardshrink_f16x2_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (idx < n) {
        *reinterpret_cast<half2*>(y + idx) = hardshrink(*reinterpret_cast<const half2*>(x + idx));  // BUG
    }
}

KATA_EXPORT void hardshrink_f16x2(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    hardshrink_f16x2_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
