// Wrong: x is clamped before the formula: gelu(20) is 11.09
// Kata: gelu_f16x8_pack
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread: 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

constexpr float SQRT_2_OVER_PI = 0.7978845608f;

__device__ __forceinline__ float gelu(float unclamped) {
    const float x = fminf(fmaxf(unclamped, -9.704f), 11.09f);
    const float u = SQRT_2_OVER_PI * x * fmaf(0.044715f * x, x, 1.0f);
    return __fdividef(x, 1.0f + __expf(-2.0f * u));
}

__global__ void __launch_bounds__(THREADS)
    gelu_f16x8_pack_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
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
            y_rmem[i] = __floats2half2_rn(gelu(x2.x), gelu(x2.y));
        }
        *reinterpret_cast<uint4*>(y + idx) = *reinterpret_cast<const uint4*>(y_rmem);
    }
    if (n - idx < VEC) {
        for (int i = idx; i < n; ++i) y[i] = __float2half_rn(gelu(__half2float(x[i])));
    }
}

KATA_EXPORT void gelu_f16x8_pack(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    gelu_f16x8_pack_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
