// Wrong: Phi(-|x|) stands for Phi(x) on both sides of 0
// Kata: gelu_erf_f16x8_pack
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread: 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// Phi(x) = 0.5 (1 + erf(x / sqrt(2))). Phi(-t) = 2^q(t) for t >= 0, in float, good to a half: log2 of Phi(-t) is
// smooth and falls ever faster. q is the polynomial of degree 5 with q(0) = -1 that fits it best over 0 <= t <= 6;
// beyond 6 it falls on, and the answer is 0 in half.
__device__ __forceinline__ float lower_tail(float t) {
    float q = -0.000332279f;
    q = fmaf(q, t, 0.00596167f);
    q = fmaf(q, t, -0.0487841f);
    q = fmaf(q, t, -0.463169f);
    q = fmaf(q, t, -1.14983f);
    return exp2f(fmaf(q, t, -1.0f));
}

// Phi(x) = 1 - Phi(-x) for x > 0: no cancellation, Phi(-x) is at most a half there. A nan comes out by either way.
__device__ __forceinline__ float gelu_erf(float x) {
    const float tail = lower_tail(fabsf(x));
    return x * tail;
}

__global__ void __launch_bounds__(THREADS)
    gelu_erf_f16x8_pack_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
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
            y_rmem[i] = __floats2half2_rn(gelu_erf(x2.x), gelu_erf(x2.y));
        }
        *reinterpret_cast<uint4*>(y + idx) = *reinterpret_cast<const uint4*>(y_rmem);
    }
    if (n - idx < VEC) {
        for (int i = idx; i < n; ++i) y[i] = __float2half_rn(gelu_erf(__half2float(x[i])));
    }
}

KATA_EXPORT void gelu_erf_f16x8_pack(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    gelu_erf_f16x8_pack_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
