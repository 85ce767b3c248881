// Wrong: the launcher divides by the number of full blocks
// Kata: elementwise_f32
// Sim: crash | launch failed: on aarch64 an integer divided by zero is 0, and the grid empty
// Gpu: crash | launch failed: as on the simulator
#include "kata.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    elementwise_f32_kernel(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    // The last block ends at most at 2^31 - 1, because THREADS divides 2^31: int holds every idx.
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) c[idx] = a[idx] + b[idx];
}

KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int full_blocks = n / THREADS;
    const int per_block = n / full_blocks;
    const int blocks = (n - 1) / per_block + 1;
    elementwise_f32_kernel<<<blocks, THREADS, 0, stream>>>(a, b, c, n);
}
