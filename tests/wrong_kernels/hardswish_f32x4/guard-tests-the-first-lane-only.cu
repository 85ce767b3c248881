// Wrong: the guard speaks of the first of four elements: a ragged end is read and written whole
// Kata: hardswish_f32x4
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // elements per thread: float4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// The clamp is divided by 6 before it meets x: x * 6 would overflow for large x. The product, and not a branch, makes
// nan of nan (fmaxf alone would drop it) and of -inf.
__device__ __forceinline__ float hardswish(float x) {
    return x * (fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f));
}

__global__ void __launch_bounds__(THREADS)
    hardswish_f32x4_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    // n - idx cannot overflow where idx + VEC could.
    if (idx < n) {
        const float4 x4 = *reinterpret_cast<const float4*>(x + idx);  // BUG
        *reinterpret_cast<float4*>(y + idx) =
            make_float4(hardswish(x4.x), hardswish(x4.y), hardswish(x4.z), hardswish(x4.w));
    }
}

KATA_EXPORT void hardswish_f32x4(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    hardswish_f32x4_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
