// Wrong: x is clamped before the formula: gelu(20) is 11.09
// Kata: gelu_f16x8
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread: four half2
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

constexpr float SQRT_2_OVER_PI = 0.7978845608f;

__device__ __forceinline__ float gelu(float unclamped) {
    const float x = fminf(fmaxf(unclamped, -9.704f), 11.09f);
    const float u = SQRT_2_OVER_PI * x * fmaf(0.044715f * x, x, 1.0f);
    return __fdividef(x, 1.0f + __expf(-2.0f * u));
}

__global__ void __launch_bounds__(THREADS) gelu_f16x8_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (n - idx >= VEC) {
#pragma unroll
        for (int i = idx; i < idx + VEC; i += 2) {
            const float2 x2 = __half22float2(*reinterpret_cast<const half2*>(x + i));
            *reinterpret_cast<half2*>(y + i) = __floats2half2_rn(gelu(x2.x), gelu(x2.y));
        }
    }
    if (n - idx < VEC) {
        for (int i = idx; i < n; ++i) y[i] = __float2half_rn(gelu(__half2float(x[i])));
    }
}

KATA_EXPORT void gelu_f16x8(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    gelu_f16x8_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
