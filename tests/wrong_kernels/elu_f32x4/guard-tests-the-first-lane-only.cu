// Wrong: the guard speaks of the first of four elements: a ragged end is read and written whole
// Kata: elu_f32x4
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // elements per thread: float4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// expf(x) - 1 cancels near 0: exp(x) is rounded in steps of 2^-24 there, however small x is.
__device__ __forceinline__ float elu(float x) {
    return x > 0.0f ? x : expm1f(x);
}

__global__ void __launch_bounds__(THREADS) elu_f32x4_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (idx < n) {
        const float4 x4 = *reinterpret_cast<const float4*>(x + idx);  // BUG
        *reinterpret_cast<float4*>(y + idx) = make_float4(elu(x4.x), elu(x4.y), elu(x4.z), elu(x4.w));
    }
}

KATA_EXPORT void elu_f32x4(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    elu_f32x4_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
