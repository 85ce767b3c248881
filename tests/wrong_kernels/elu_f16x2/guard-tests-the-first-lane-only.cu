// Wrong: the guard speaks of the first of two halves: an odd n is read and written one too far
// Kata: elu_f16x2
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 2;                    // elements per thread: half2 is 4 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// In float, rounded to half once, by the caller. __expf(x) - 1 is off by about 2^-22, too much where the answer itself
// is small: three terms of the series stand in for it above -1/32, where the next is less than 2^-19 of the answer.
__device__ __forceinline__ float elu(float x) {
    const float near_0 = x * fmaf(x, fmaf(x, 1.0f / 6.0f, 0.5f), 1.0f);
    const float below_0 = x > -0.03125f ? near_0 : __expf(x) - 1.0f;
    return x > 0.0f ? x : below_0;
}

__global__ void __launch_bounds__(THREADS) elu_f16x2_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (idx < n) {
        const float2 x2 = __half22float2(*reinterpret_cast<const half2*>(x + idx));  // BUG
        *reinterpret_cast<half2*>(y + idx) = __floats2half2_rn(elu(x2.x), elu(x2.y));
    }
}

KATA_EXPORT void elu_f16x2(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    elu_f16x2_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
