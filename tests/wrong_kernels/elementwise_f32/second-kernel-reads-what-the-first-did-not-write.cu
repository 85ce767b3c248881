// Wrong: stages the sums in memory of its own and copies one element too many from it, which was never written
// Kata: elementwise_f32
// Sim: uninitialised
// Gpu: not shown: nobody looks at the surplus element of the scratch memory
// Line: // BUG
// Sizes: n=1
#include "kata.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    elementwise_f32_kernel(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    // The last block ends at most at 2^31 - 1, because THREADS divides 2^31: int holds every idx.
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) c[idx] = a[idx] + b[idx];
}

__global__ void __launch_bounds__(THREADS) copy_kernel(const float* __restrict__ from, float* __restrict__ to, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    const float value = idx <= n ? from[idx] : 0.0f;  // BUG
    if (idx < n) to[idx] = value;
    if (value > 3.0e38f && n < 0) to[0] = value;
}

KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    float* scratch = nullptr;
    cudaMallocAsync(&scratch, (static_cast<size_t>(n) + 1) * sizeof(float), stream);
    elementwise_f32_kernel<<<blocks, THREADS, 0, stream>>>(a, b, scratch, n);
    copy_kernel<<<blocks, THREADS, 0, stream>>>(scratch, c, n);
    cudaFreeAsync(scratch, stream);
}
