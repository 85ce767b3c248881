// Wrong: the guard speaks of the first of four elements: a ragged end is read and written whole
// Kata: hardshrink_f32x4
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // elements per thread: float4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block
constexpr float LAMBDA = 0.5f;

// Asks which x become 0, not which stay: every comparison with nan is false, and nan must stay.
__device__ __forceinline__ float hardshrink(float x) {
    return fabsf(x) <= LAMBDA ? 0.0f : x;
}

__global__ void __launch_bounds__(THREADS)
    hardshrink_f32x4_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    // n - idx cannot overflow where idx + VEC could.
    if (idx < n) {
        const float4 x4 = *reinterpret_cast<const float4*>(x + idx);  // BUG
        *reinterpret_cast<float4*>(y + idx) =
            make_float4(hardshrink(x4.x), hardshrink(x4.y), hardshrink(x4.z), hardshrink(x4.w));
    }
}

KATA_EXPORT void hardshrink_f32x4(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    hardshrink_f32x4_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
