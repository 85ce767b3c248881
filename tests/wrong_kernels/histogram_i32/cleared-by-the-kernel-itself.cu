// Wrong: block 0 clears the bins while the other blocks already count
// Kata: histogram_i32
// Sim: wrong answer | uninitialised | race: what shows depends on the order of blocks
// Gpu: wrong answer | race: the order of blocks decides which
#include "kata.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    histogram_i32_kernel(const int* __restrict__ a, int* __restrict__ counts, int n, int bins) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (blockIdx.x == 0) {
        for (int bin = threadIdx.x; bin < bins; bin += THREADS) counts[bin] = 0;
    }
    __syncthreads();
    if (idx < n) atomicAdd(&counts[a[idx]], 1);
}

KATA_EXPORT void histogram_i32(const int* a, int* counts, int n, int bins, cudaStream_t stream) {
    const int blocks = n == 0 ? 1 : (n - 1) / THREADS + 1;
    histogram_i32_kernel<<<blocks, THREADS, 0, stream>>>(a, counts, n, bins);
}
