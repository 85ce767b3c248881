// Wrong: the fourth lane is computed from the third
// Kata: relu_f32x4
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=4
// Says: only .*\b3\b
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // elements per thread: float4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// Every comparison with a nan is false, so a nan falls through. fmaxf(x, 0) would make it 0.
__device__ __forceinline__ float relu(float x) {
    return x < 0.0f ? 0.0f : x;
}

__global__ void __launch_bounds__(THREADS)
    relu_f32x4_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    // n - idx cannot overflow where idx + VEC could.
    if (n - idx >= VEC) {
        const float4 x4 = *reinterpret_cast<const float4*>(x + idx);
        *reinterpret_cast<float4*>(y + idx) = make_float4(relu(x4.x), relu(x4.y), relu(x4.z), relu(x4.z));
    }
    if (n - idx < VEC) {
        for (int i = idx; i < n; ++i) y[i] = relu(x[i]);
    }
}

KATA_EXPORT void relu_f32x4(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    relu_f32x4_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
