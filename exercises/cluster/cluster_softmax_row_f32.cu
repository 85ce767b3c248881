// cluster_softmax_row_f32: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max), a row on 8 SMs
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows >= 1, cols in 1..458752
// Technique  one cluster per row: its blocks hold the row in their shared memory, and merge their pairs of maximum and
//            sum
// New        over cluster_reduce_f32: every block needs the result; over softmax_block_smem_f32: 8 blocks for one row
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cooperative_groups.h>
#include <cstdint>

namespace cg = cooperative_groups;

constexpr int RANKS = 8;  // blocks per cluster
constexpr int THREADS = 512;
constexpr int BLOCKS_PER_SM = 3;  // of the longest rows that 64 KB per block hold: while one waits, the others load
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int BATCH = 16;  // elements that a thread asks for before it needs the first
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");
static_assert(RANKS <= WARP_SIZE, "one warp combines the partial results of all blocks");

// The maximum of some elements of a row, and their sum of exp(element - maximum).
struct Partial {
    float max;
    float sum;
};

// The pair of no elements. The lowest float stands in for -inf, because -inf - -inf is nan, not 0.
__device__ __forceinline__ Partial nothing() {
    return {-FLT_MAX, 0.0f};
}

// The pair of the elements of both. The pair of a single element x is {x, 1}.
__device__ __forceinline__ Partial merge(Partial a, Partial b) {
    Partial merged = nothing();
    merged.max = fmaxf(a.max, b.max);
    merged.sum = a.sum * __expf(a.max - merged.max) + b.sum * __expf(b.max - merged.max);
    return merged;
}

// The lanes' partial results merged, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ Partial warp_reduce(Partial value) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
        const float max = __shfl_xor_sync(FULL_MASK, value.max, offset);
        const float sum = __shfl_xor_sync(FULL_MASK, value.sum, offset);
        value = merge(value, {max, sum});
    }
    return value;
}

// The threads' partial results merged, in every thread. All threads must call it together, and once in a kernel.
__device__ __forceinline__ Partial block_reduce(Partial value, Partial* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    value = warp_reduce(value);
    if (lane_id == 0) partial_smem[warp_id] = value;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    value = warp_reduce(lane_id < WARPS ? partial_smem[lane_id] : nothing());
    return value;
}

// Pack is what one access moves. Its VEC elements divide cols and every block's share of them: a vector lies in a share
// as a whole or not at all, and every share starts at a multiple of its size.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(float);

// global or shared -> registers: from[0..VEC-1]
template <typename Pack>
__device__ __forceinline__ void load(float* to_rmem, const float* from) {
    *reinterpret_cast<Pack*>(to_rmem) = *reinterpret_cast<const Pack*>(from);
}

// registers -> global or shared: to[0..VEC-1]
template <typename Pack>
__device__ __forceinline__ void store(float* to, const float* from_rmem) {
    *reinterpret_cast<Pack*>(to) = *reinterpret_cast<const Pack*>(from_rmem);
}

// Block rank of a cluster has the columns from rank * share on: share of them, fewer at the end of the row, or none.
template <typename Pack>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    cluster_softmax_row_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int cols, int share) {
    extern __shared__ float4 dynamic_smem[];
    __shared__ Partial partial_smem[WARPS];
    __shared__ Partial block_smem;                               // the block's pair, for the other blocks
    float* share_smem = reinterpret_cast<float*>(dynamic_smem);  // [share]
    const cg::cluster_group cluster = cg::this_cluster();
    const int tid = threadIdx.x;
    const int lane_id = tid % WARP_SIZE;
    int off = 0, mine = 0;
    // TODO(1): This block's columns of the row: the first of them, and how many. 0 or less means none: short rows leave
    //   nothing for the last blocks. (~2 lines)
    // END TODO(1)
    const float* x_share = x + blockIdx.x / RANKS * static_cast<int64_t>(cols) + off;
    float* y_share = y + blockIdx.x / RANKS * static_cast<int64_t>(cols) + off;
    Partial row = nothing();
    for (int begin = 0; begin < mine; begin += BATCH * THREADS) {
        alignas(Pack) float x_rmem[BATCH];
#pragma unroll
        for (float& value : x_rmem) value = -INFINITY;
#pragma unroll
        for (int i = 0; i < BATCH; i += VEC<Pack>) {
            const int col = begin + i * THREADS + tid * VEC<Pack>;
            if (col < mine) load<Pack>(x_rmem + i, x_share + col);
        }
        // TODO(2): registers -> shared, nothing past the share. Merge the batch's maximum and sum into the row's.
        //   (~11 lines)
        // END TODO(2)
    }
    row = block_reduce(row, partial_smem);
    // TODO(3): The pair of the whole row, in every thread of the cluster: one exchange for both numbers. No block may
    //   read a pair before it is written. (~4 lines)
    // END TODO(3)
    // This thread has read the other blocks' pairs.
    cluster.barrier_arrive();
    const float scale = 1.0f / row.sum;
    // No barrier for share_smem: no thread reads what another wrote.
    for (int col = tid * VEC<Pack>; col < mine; col += THREADS * VEC<Pack>) {
        alignas(Pack) float y_rmem[VEC<Pack>];
        load<Pack>(y_rmem, share_smem + col);
#pragma unroll
        for (float& value : y_rmem) value = __expf(value - row.max) * scale;
        store<Pack>(y_share + col, y_rmem);
    }
    // Other blocks may still read this block's pair, which ends with the block.
    cluster.barrier_wait();
}

KATA_EXPORT void cluster_softmax_row_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // All rows start at a multiple of 16 bytes only where cols is a multiple of 4.
    const auto kernel = cols % 4 == 0 ? cluster_softmax_row_f32_kernel<float4> : cluster_softmax_row_f32_kernel<float>;
    int share = 0;
    // TODO(4): Columns per block. Every share must start at a multiple of 16 bytes in a row that does. (~1 line)
    // END TODO(4)
    const int smem_bytes = share * static_cast<int>(sizeof(float));
    // Without this attribute a launch gets at most 48 KB of dynamic shared memory.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = RANKS;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = rows * RANKS;
    config.blockDim = THREADS;
    config.dynamicSmemBytes = smem_bytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, x, y, cols, share);
}
