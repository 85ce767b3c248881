// cluster_histogram_i32: counts[v] = how often v occurs in a, each cluster with its own counters
//
// Shapes     a: [n] i32 with values in 0..bins-1, counts: [bins] i32, 16-byte aligned bases, any n >= 0, bins >= 1
// Technique  the 8 blocks of a cluster share the counters: each has an eighth of the bins in its shared memory, in
//            which all of them count; bins that do not fit are counted in global memory
// New        over histogram_i32_privatized: 8 times as many bins in shared memory; over cluster_exchange_f32: atomics
//            on the shared memory of other blocks
// Bound      atomics in distributed shared memory
#include "kata.cuh"
#include <algorithm>
#include <cooperative_groups.h>
#include <cstdint>

namespace cg = cooperative_groups;

constexpr int RANKS = 8;  // blocks per cluster
constexpr int THREADS = 512;
constexpr int VEC = 4;                    // values per thread and step: int4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // values per block and step
constexpr int CHUNK = 8;                  // neighbouring bins of one block: their counts are one sector of 32 bytes
constexpr int MAX_OWN_BINS = 12288;       // 48 KB of counters per block, which it gets without asking for more

// A bin's place: the block of the cluster that counts it, and the counter there.
struct Place {
    int rank;
    int slot;
};

// The chunks of bins go round the blocks: each block has a part of any range of bins.
__device__ __forceinline__ Place place_of(int bin) {
    const int chunk = bin / CHUNK;
    return {chunk % RANKS, chunk / RANKS * CHUNK + bin % CHUNK};
}

// The bin of a place: the inverse of place_of.
__device__ __forceinline__ int bin_of(int rank, int slot) {
    int bin = 0;
    // TODO(1): place_of(bin) must be {rank, slot}. (~1 line)
    bin = (slot / CHUNK * RANKS + rank) * CHUNK + slot % CHUNK;
    // END TODO(1)
    return bin;
}

// Raises the count of one value: the cluster's own counter where there is one. The old values are not used.
__device__ __forceinline__ void count_value(int value, int* counts_smem, int* counts, int own_bins) {
    const Place place = place_of(value);
    // TODO(2): Any thread of the cluster may raise the same count at once, and in global memory any thread of the grid.
    //   (~5 lines)
    if (place.slot < own_bins) {
        atomicAdd(cg::this_cluster().map_shared_rank(counts_smem, place.rank) + place.slot, 1);
    } else {
        atomicAdd(&counts[value], 1);
    }
    // END TODO(2)
}

__global__ void __launch_bounds__(THREADS)
    cluster_histogram_i32_kernel(const int* __restrict__ a, int* __restrict__ counts, int n, int own_bins) {
    extern __shared__ int counts_smem[];  // [own_bins]: the cluster's counts of this block's bins
    const cg::cluster_group cluster = cg::this_cluster();
    // TODO(3): Clear all of the cluster's counters before any thread of the cluster counts. (~2 lines)
    for (int slot = threadIdx.x; slot < own_bins; slot += THREADS) counts_smem[slot] = 0;
    // A thread counts in bins that other blocks clear.
    cluster.sync();
    // END TODO(3)
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
    // TODO(4): When all threads of the cluster have counted, add this block's counters to the global ones, at most one
    //   atomic per bin and cluster. Other clusters add at the same time. (~5 lines)
    // A thread reads counters that other blocks raised. No block uses another's counters after this barrier.
    cluster.sync();
    for (int slot = threadIdx.x; slot < own_bins; slot += THREADS) {
        const int counted = counts_smem[slot];
        if (counted != 0) atomicAdd(&counts[bin_of(cluster.block_rank(), slot)], counted);
    }
    // END TODO(4)
}

KATA_EXPORT void cluster_histogram_i32(const int* a, int* counts, int n, int bins, cudaStream_t stream) {
    cudaMemsetAsync(counts, 0, bins * sizeof(int), stream);  // counts holds old memory contents
    if (n == 0) return;                                      // a grid of no blocks is an invalid launch
    int own_bins = 0;
    // TODO(5): Counters per block: room for all bins of the cluster, whole chunks, MAX_OWN_BINS at most. (~1 line)
    own_bins = std::min(((bins - 1) / (RANKS * CHUNK) + 1) * CHUNK, MAX_OWN_BINS);
    // END TODO(5)
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = RANKS;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = RANKS;
    config.blockDim = THREADS;
    config.dynamicSmemBytes = own_bins * sizeof(int);
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    // Every cluster costs one atomic per bin, so launch only as many clusters as run at the same time.
    int most_clusters = 0;
    cudaOccupancyMaxActiveClusters(&most_clusters, cluster_histogram_i32_kernel, &config);
    config.gridDim = std::min((n - 1) / (RANKS * PER_BLOCK) + 1, most_clusters) * RANKS;
    cudaLaunchKernelEx(&config, cluster_histogram_i32_kernel, a, counts, n, own_bins);
}
