// cluster_reduce_f32: y[0] = sum of all x
//
// Shapes     x: [n] f32, contiguous, 16-byte aligned base, y: [1] f32, any n >= 0; the sum of no elements is 0
// Technique  at most 256 clusters, which walk over x in vectors; the first block of a cluster adds the sums of its 8
//            blocks from their shared memory, and adds the result to y
// New        over cluster_exchange_f32: a block reads from all blocks of its cluster, and one atomic per cluster is
//            left
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int RANKS = 8;  // blocks per cluster
constexpr int THREADS = 256;
constexpr int VEC = 4;  // elements per load: float4 is 16 bytes
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
constexpr int MIN_PER_CLUSTER = RANKS * 2048;  // elements: with fewer, a cluster costs more in its sums than in loads
constexpr int MAX_CLUSTERS = 256;              // two waves on 132 SMs with 8 blocks each
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp adds the partial sums of all warps");
static_assert(RANKS <= WARP_SIZE, "one warp adds the sums of all blocks");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// The sum over the block's threads, in every thread. All threads must call it together, and only once per kernel: a
// second call would overwrite partial sums that a slow warp may still read.
__device__ __forceinline__ float block_reduce_sum(float sum, float* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < WARPS ? partial_smem[lane_id] : 0.0f);
    return sum;
}

// Adds the cluster's sum to y[0], which must hold 0 before the kernel begins.
__global__ void __launch_bounds__(THREADS) cluster_reduce_f32_kernel(const float* __restrict__ x, float* y, int n) {
    __shared__ float partial_smem[WARPS];
    __shared__ float sum_smem;  // of this block
    const cg::cluster_group cluster = cg::this_cluster();
    const int tid = threadIdx.x;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = gridDim.x * THREADS;
    float sum = 0.0f;
    // Unrolled: four loads are in flight before the first value is needed.
#pragma unroll 4
    for (int v = first; v < n / VEC; v += stride) {
        const float4 x4 = *reinterpret_cast<const float4*>(x + v * VEC);
        // In pairs: a shorter chain of roundings, and independent additions.
        sum += (x4.x + x4.y) + (x4.z + x4.w);
    }
    if (first < n % VEC) sum += x[n - 1 - first];
    sum = block_reduce_sum(sum, partial_smem);
    // TODO(1): Publish the block's sum to its cluster. When may another block read it? (~2 lines)
    // END TODO(1)
    // TODO(2): The first warp of the first block adds the sums of all blocks, with all its lanes in the shuffles. One
    //   thread adds the result to y[0], and other clusters add at the same time. (~4 lines)
    // END TODO(2)
    // TODO(3): A block's shared memory ends with the block. (~1 line)
    // END TODO(3)
}

KATA_EXPORT void cluster_reduce_f32(const float* x, float* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(float), stream);  // y holds old memory contents
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = RANKS;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    // For no elements, too, a cluster runs: a grid of no blocks is an invalid launch.
    config.gridDim = std::min(std::max(n - 1, 0) / MIN_PER_CLUSTER + 1, MAX_CLUSTERS) * RANKS;
    config.blockDim = THREADS;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, cluster_reduce_f32_kernel, x, y, n);
}
