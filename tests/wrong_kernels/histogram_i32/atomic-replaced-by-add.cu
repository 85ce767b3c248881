// Wrong: counts with a plain add: equal values of a warp count once
// Kata: histogram_i32
// Sim: race
// Gpu: wrong answer
// Sizes: n=2, bins=1
#include "kata.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    histogram_i32_kernel(const int* __restrict__ a, int* __restrict__ counts, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) counts[a[idx]] += 1;
}

KATA_EXPORT void histogram_i32(const int* a, int* counts, int n, int bins, cudaStream_t stream) {
    cudaMemsetAsync(counts, 0, bins * sizeof(int), stream);
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    histogram_i32_kernel<<<blocks, THREADS, 0, stream>>>(a, counts, n);
}
