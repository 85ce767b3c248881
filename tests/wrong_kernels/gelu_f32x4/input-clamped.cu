// Wrong: x is clamped before the formula: gelu(100) is 88.38
// Kata: gelu_f32x4
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // elements per thread: float4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

constexpr float SQRT_2_OVER_PI = 0.7978845608f;

__device__ __forceinline__ float gelu(float unclamped) {
    const float x = fminf(fmaxf(unclamped, -88.3762626647949f), 88.3762626647949f);
    const float u = SQRT_2_OVER_PI * x * fmaf(0.044715f * x, x, 1.0f);
    return x / (1.0f + expf(-2.0f * u));
}

__global__ void __launch_bounds__(THREADS)
    gelu_f32x4_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    // n - idx cannot overflow where idx + VEC could.
    if (n - idx >= VEC) {
        const float4 x4 = *reinterpret_cast<const float4*>(x + idx);
        *reinterpret_cast<float4*>(y + idx) = make_float4(gelu(x4.x), gelu(x4.y), gelu(x4.z), gelu(x4.w));
    }
    if (n - idx < VEC) {
        for (int i = idx; i < n; ++i) y[i] = gelu(x[i]);
    }
}

KATA_EXPORT void gelu_f32x4(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    gelu_f32x4_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
