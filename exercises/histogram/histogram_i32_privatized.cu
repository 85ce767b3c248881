// histogram_i32_privatized: counts[v] = how often v occurs in a, each block with its own counters
//
// Shapes     a: [n] i32 with values in 0..bins-1, counts: [bins] i32, 16-byte aligned bases, any n >= 0, bins >= 1
// Technique  a block counts many values in shared memory, and adds each counter to global memory once; bins that do not
//            fit in shared memory are counted in global memory as before
// New        over histogram_i32x4_grid_stride: counters in shared memory, and two barriers
// Bound      atomics in shared memory, or memory bandwidth where these are fast enough
#include "kata.cuh"
#include <algorithm>
#include <cstdint>

constexpr int THREADS = 512;
constexpr int VEC = 4;                    // values per thread and step: int4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // values per block and step
constexpr int MAX_OWN_BINS = 12288;       // 48 KB of counters, which a block gets without asking for more

// Raises the count of one value: the block's own counter where there is one. The old values are not used.
__device__ __forceinline__ void count_value(int value, int* counts_smem, int* counts, int own_bins) {
    // TODO(1): Many threads may raise the same count at once, in shared memory and in global memory. (~5 lines)
    // END TODO(1)
}

__global__ void __launch_bounds__(THREADS)
    histogram_i32_privatized_kernel(const int* __restrict__ a, int* __restrict__ counts, int n, int own_bins) {
    extern __shared__ int counts_smem[];  // [own_bins]: this block's counts of the bins 0..own_bins-1
    // TODO(2): Clear all of the block's own counters before any thread counts. (~2 lines)
    // END TODO(2)
    // A grid-stride loop over a. 64-bit: the step past the end may exceed 2^31.
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
    // TODO(3): When all threads of the block have counted, add its counters to the global ones, at most one atomic per
    //   bin. Other blocks add at the same time. (~5 lines)
    // END TODO(3)
}

KATA_EXPORT void histogram_i32_privatized(const int* a, int* counts, int n, int bins, cudaStream_t stream) {
    cudaMemsetAsync(counts, 0, bins * sizeof(int), stream);  // counts holds old memory contents
    if (n == 0) return;                                      // a grid of no blocks is an invalid launch
    const int own_bins = std::min(bins, MAX_OWN_BINS);
    const size_t smem_bytes = own_bins * sizeof(int);
    // Every block costs one atomic per bin, so launch only as many blocks as run at the same time.
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
