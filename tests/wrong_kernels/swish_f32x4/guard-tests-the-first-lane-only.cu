// Wrong: the guard speaks of the first of four elements: a ragged end is read and written whole
// Kata: swish_f32x4
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // elements per thread: float4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// x * sigmoid(x). Below -88.7 exp(-x) passes the largest float, while the answer is still some 1e-37. exp(-|x|) is at
// most 1, so nothing overflows, and the answer fades out among the denormals.
__device__ __forceinline__ float swish(float x) {
    const float e = expf(-fabsf(x));
    return (x < 0.0f ? x * e : x) / (1.0f + e);
}

__global__ void __launch_bounds__(THREADS)
    swish_f32x4_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    // n - idx cannot overflow where idx + VEC could.
    if (idx < n) {
        const float4 x4 = *reinterpret_cast<const float4*>(x + idx);  // BUG
        *reinterpret_cast<float4*>(y + idx) = make_float4(swish(x4.x), swish(x4.y), swish(x4.z), swish(x4.w));
    }
}

KATA_EXPORT void swish_f32x4(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    swish_f32x4_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
