// Wrong: the block's own counters are raised by a plain addition, as if they were the thread's own
// Kata: histogram_i32_privatized
// Sim: race
// Gpu: wrong answer
// Line: // BUG
#include "kata.cuh"
#include <algorithm>
#include <cstdint>

constexpr int THREADS = 512;
constexpr int VEC = 4;                    // values per thread in a turn: int4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // values per block in a turn
constexpr int MAX_OWN_BINS = 12288;       // 48 KB of counters, which a block gets without asking for more

// Raises the count of one value: the block's own where it has one. Additions of 1 whose old value nobody wants.
__device__ __forceinline__ void count_value(int value, int* counts_smem, int* counts, int own_bins) {
    if (value < own_bins) {
        counts_smem[value] += 1;  // BUG
    } else {
        atomicAdd(&counts[value], 1);
    }
}

__global__ void __launch_bounds__(THREADS)
    histogram_i32_privatized_kernel(const int* __restrict__ a, int* __restrict__ counts, int n, int own_bins) {
    extern __shared__ int counts_smem[];  // [own_bins]: what this block has counted of the bins 0..own_bins-1
    for (int bin = threadIdx.x; bin < own_bins; bin += THREADS) counts_smem[bin] = 0;
    // A thread counts in bins that other threads clear.
    __syncthreads();
    // Turn after turn, the grid goes over a from front to back. 64-bit: the step past the end may pass 2^31.
    const int64_t stride = static_cast<int64_t>(gridDim.x) * PER_BLOCK;
    for (int64_t idx = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * VEC; idx < n; idx += stride) {
        if (n - idx >= VEC) {
            const int4 a4 = *reinterpret_cast<const int4*>(a + idx);
            count_value(a4.x, counts_smem, counts, own_bins);
            count_value(a4.y, counts_smem, counts, own_bins);
            count_value(a4.z, counts_smem, counts, own_bins);
            count_value(a4.w, counts_smem, counts, own_bins);
        }
        if (n - idx < VEC) {
            for (int64_t i = idx; i < n; ++i) count_value(a[i], counts_smem, counts, own_bins);
        }
    }
    // A counter is read by another thread than those that raised it.
    __syncthreads();
    for (int bin = threadIdx.x; bin < own_bins; bin += THREADS) {
        const int counted = counts_smem[bin];
        if (counted != 0) atomicAdd(&counts[bin], counted);
    }
}

KATA_EXPORT void histogram_i32_privatized(const int* a, int* counts, int n, int bins, cudaStream_t stream) {
    cudaMemsetAsync(counts, 0, bins * sizeof(int), stream);  // counts comes with whatever was in memory
    if (n == 0) return;                                      // a grid of no blocks is an invalid launch
    const int own_bins = std::min(bins, MAX_OWN_BINS);
    const size_t smem_bytes = own_bins * sizeof(int);
    // Every block costs one atomic a bin, so no more blocks than run at the same time.
    int device = 0;
    int multiprocessors = 0;
    int blocks_per_multiprocessor = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks_per_multiprocessor, histogram_i32_privatized_kernel, THREADS, smem_bytes);
    const int most_blocks = multiprocessors * blocks_per_multiprocessor;
    const int blocks = std::min((n - 1) / PER_BLOCK + 1, most_blocks);
    histogram_i32_privatized_kernel<<<blocks, THREADS, smem_bytes, stream>>>(a, counts, n, own_bins);
}
