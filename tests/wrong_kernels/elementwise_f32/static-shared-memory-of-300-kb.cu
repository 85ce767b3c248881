// Wrong: declares 300 KB of shared memory
// Kata: elementwise_f32
// Sim: does not compile
// Gpu: does not compile
// Line: // BUG
// Says: elementwise_f32_kernel.* 307200 .*static shared
#include "kata.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    elementwise_f32_kernel(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    // The last block ends at most at 2^31 - 1, because THREADS divides 2^31: int holds every idx.
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    __shared__ float tile_smem[300 * 1024 / sizeof(float)];  // BUG
    for (int i = threadIdx.x; i < 300 * 1024 / sizeof(float); i += THREADS) tile_smem[i] = 0.0f;
    __syncthreads();
    if (idx < n) c[idx] = a[idx] + b[idx] + tile_smem[idx];
}

KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    elementwise_f32_kernel<<<blocks, THREADS, 0, stream>>>(a, b, c, n);
}
