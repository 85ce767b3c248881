// Wrong: x is written where y belongs: both halves of a pair get the first one's answer
// Kata: swish_f16x8_pack
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=8
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread: 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// x * sigmoid(x) in float, by fast intrinsics: off by 3e-6 of itself at most, where rounding to half makes 5e-4.
// exp(-x) overflows below -88.7, and the quotient becomes 0; so is the answer as a half, from -20.4 on.
__device__ __forceinline__ float swish(float x) {
    return __fdividef(x, 1.0f + __expf(-x));
}

__global__ void __launch_bounds__(THREADS)
    swish_f16x8_pack_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (n - idx >= VEC) {
        // Every index into them is known once the loop is unrolled, so these live in registers. 16 bytes each, and
        // aligned as the 128-bit type that fills them demands.
        alignas(16) half2 x_rmem[VEC / 2];
        alignas(16) half2 y_rmem[VEC / 2];
        *reinterpret_cast<uint4*>(x_rmem) = *reinterpret_cast<const uint4*>(x + idx);
#pragma unroll
        for (int i = 0; i < VEC / 2; ++i) {
            const float2 x2 = __half22float2(x_rmem[i]);
            y_rmem[i] = __floats2half2_rn(swish(x2.x), swish(x2.x));
        }
        *reinterpret_cast<uint4*>(y + idx) = *reinterpret_cast<const uint4*>(y_rmem);
    }
    if (n - idx < VEC) {
        for (int i = idx; i < n; ++i) y[i] = __float2half(swish(__half2float(x[i])));
    }
}

KATA_EXPORT void swish_f16x8_pack(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    swish_f16x8_pack_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
