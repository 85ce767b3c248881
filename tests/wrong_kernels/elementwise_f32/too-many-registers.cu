// Wrong: 1024 threads that need more registers each than a multiprocessor has for them
// Kata: elementwise_f32
// Sim: not shown: PTX has registers without end; ptxas gives them out
// Gpu: launch failed
// Sizes: n=1
#include "kata.cuh"

constexpr int THREADS = 1024;

__global__ void elementwise_f32_kernel(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    // The last block ends at most at 2^31 - 1, because THREADS divides 2^31: int holds every idx.
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx >= n) return;
    // All VALUES are alive at once in the loop, which no n >= 0 enters: the compiler cannot know that.
    constexpr int VALUES = 128;
    float held[VALUES];
#pragma unroll
    for (int i = 0; i < VALUES; ++i) held[i] = a[idx] * i;
    for (int round = n; round < 0; ++round) {
#pragma unroll
        for (int i = 0; i < VALUES; ++i) held[i] = fmaf(held[i], held[(i + 1) % VALUES], b[idx]);
    }
    c[idx] = held[1] + b[idx];
}

KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    elementwise_f32_kernel<<<blocks, THREADS, 0, stream>>>(a, b, c, n);
}
