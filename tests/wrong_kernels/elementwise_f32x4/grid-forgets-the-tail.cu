// Wrong: the grid is sized for the whole vectors: a tail that begins a new block has no thread
// Kata: elementwise_f32x4
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=1025
// Says: \b1024\b.*never written
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // elements per thread: float4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

__global__ void __launch_bounds__(THREADS)
    elementwise_f32x4_kernel(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    // n - idx cannot overflow where idx + VEC could.
    if (n - idx >= VEC) {
        const float4 a4 = *reinterpret_cast<const float4*>(a + idx);
        const float4 b4 = *reinterpret_cast<const float4*>(b + idx);
        *reinterpret_cast<float4*>(c + idx) = make_float4(a4.x + b4.x, a4.y + b4.y, a4.z + b4.z, a4.w + b4.w);
    }
    if (n - idx < VEC) {
        for (int i = idx; i < n; ++i) c[i] = a[i] + b[i];
    }
}

KATA_EXPORT void elementwise_f32x4(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int vectors = n / VEC;
    const int blocks = vectors <= THREADS ? 1 : (vectors - 1) / THREADS + 1;
    elementwise_f32x4_kernel<<<blocks, THREADS, 0, stream>>>(a, b, c, n);
}
