// Wrong: the block's own bins in shared memory are counted in before all of them are cleared
// Kata: histogram_i32
// Sim: race
// Gpu: pass | wrong answer | race: a warp must run ahead of another for it to show
// Line: // BUG
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int MAX_BINS = 1024;  // that a block keeps to itself; it counts the others where they are

__global__ void __launch_bounds__(THREADS)
    histogram_i32_kernel(const int* __restrict__ a, int* __restrict__ counts, int n, int bins) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    __shared__ int counts_smem[MAX_BINS];
    const int own_bins = min(bins, MAX_BINS);
    for (int bin = threadIdx.x; bin < own_bins; bin += THREADS) counts_smem[bin] = 0;       // BUG
    if (idx < n) atomicAdd(a[idx] < MAX_BINS ? &counts_smem[a[idx]] : &counts[a[idx]], 1);  // BUG
    __syncthreads();
    for (int bin = threadIdx.x; bin < own_bins; bin += THREADS) atomicAdd(&counts[bin], counts_smem[bin]);
}

KATA_EXPORT void histogram_i32(const int* a, int* counts, int n, int bins, cudaStream_t stream) {
    cudaMemsetAsync(counts, 0, bins * sizeof(int), stream);
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    histogram_i32_kernel<<<blocks, THREADS, 0, stream>>>(a, counts, n, bins);
}
