// Wrong: the guard speaks of the first of two halves: an odd n is read and written one too far
// Kata: relu_f16x2
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 2;                    // elements per thread: half2 is 4 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// __hmax would make 0 of a nan.
__device__ __forceinline__ half relu(half x) {
    return __hmax_nan(x, __float2half_rn(0.0f));
}
__device__ __forceinline__ half2 relu(half2 x) {
    return __hmax2_nan(x, __float2half2_rn(0.0f));
}

__global__ void __launch_bounds__(THREADS) relu_f16x2_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (idx < n) {
        const half2 x2 = *reinterpret_cast<const half2*>(x + idx);  // BUG
        *reinterpret_cast<half2*>(y + idx) = relu(x2);
    }
}

KATA_EXPORT void relu_f16x2(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    relu_f16x2_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
