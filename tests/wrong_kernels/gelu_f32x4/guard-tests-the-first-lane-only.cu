// Wrong: the guard speaks of the first of four elements: a ragged end is read and written whole
// Kata: gelu_f32x4
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // elements per thread: float4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

constexpr float SQRT_2_OVER_PI = 0.7978845608f;

// 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)): the left side cancels for u < 0, the right side does not. exp(-2u) may become
// inf: x / inf is 0 then, and -inf / inf is nan, which is what the formula says of -inf.
__device__ __forceinline__ float gelu(float x) {
    const float u = SQRT_2_OVER_PI * x * fmaf(0.044715f * x, x, 1.0f);
    return x / (1.0f + expf(-2.0f * u));
}

__global__ void __launch_bounds__(THREADS)
    gelu_f32x4_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (idx < n) {
        const float4 x4 = *reinterpret_cast<const float4*>(x + idx);  // BUG
        *reinterpret_cast<float4*>(y + idx) = make_float4(gelu(x4.x), gelu(x4.y), gelu(x4.z), gelu(x4.w));
    }
}

KATA_EXPORT void gelu_f32x4(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    gelu_f32x4_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
