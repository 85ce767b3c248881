// rms_norm_cluster_f16: y[row, col] = x[row, col] / sqrt(mean of x^2 over the row + eps) * weight[col]
//
// Shapes     x, y: [rows, cols], weight: [cols] f16, row-major, contiguous, 16-byte aligned bases, any rows >= 1, cols
//            in 1..131072
// Technique  one cluster per row, of as many blocks as hold the row in registers; the blocks add up their sums
// New        over rms_norm_f16x8_pack_f32: a row that is too long for one block; over cluster_softmax_row_f32: the size
//            of the cluster follows the row
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cooperative_groups.h>
#include <cstdint>
#include <cuda_fp16.h>

namespace cg = cooperative_groups;

constexpr int MAX_RANKS = 8;  // blocks of the largest cluster: every card with clusters has room for it
constexpr int THREADS = 512;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int HELD = 32;  // elements of the row that a thread keeps in registers
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial sums of all warps");
static_assert(MAX_RANKS <= WARP_SIZE, "one warp combines the sums of all blocks");

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
    sum = warp_reduce_sum(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : 0.0f);
    return sum;
}

// Pack is the type of one access. Its VEC elements divide cols and every block's share of them: a share holds only whole
// vectors, and starts at a multiple of its size.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(half);

// global -> registers: from[0..VEC-1] as floats
template <typename Pack>
__device__ __forceinline__ void load(float* to_rmem, const half* from) {
    alignas(Pack) half pack_rmem[VEC<Pack>];
    *reinterpret_cast<Pack*>(pack_rmem) = *reinterpret_cast<const Pack*>(from);
#pragma unroll
    for (int i = 0; i < VEC<Pack>; ++i) to_rmem[i] = __half2float(pack_rmem[i]);
}

// registers -> global: to[0..VEC-1], each rounded once
template <typename Pack>
__device__ __forceinline__ void store(half* to, const float* from_rmem) {
    alignas(Pack) half pack_rmem[VEC<Pack>];
#pragma unroll
    for (int i = 0; i < VEC<Pack>; ++i) pack_rmem[i] = __float2half(from_rmem[i]);
    *reinterpret_cast<Pack*>(to) = *reinterpret_cast<const Pack*>(pack_rmem);
}

// Two blocks per SM: at most 64 registers per thread, and one block loads while the other computes.
// Block rank of a cluster has the columns from rank * share on, as many as share, or fewer at the end of the row.
template <typename Pack>
__global__ void __launch_bounds__(THREADS, 2) rms_norm_cluster_f16_kernel(
    const half* __restrict__ x, const half* __restrict__ weight, half* __restrict__ y, int cols, int share, float eps) {
    __shared__ float partial_smem[WARPS];
    __shared__ float sum_smem;  // of this block
    const cg::cluster_group cluster = cg::this_cluster();
    const int ranks = cluster.num_blocks();
    const int tid = threadIdx.x;
    const int lane_id = tid % WARP_SIZE;
    const int threads = blockDim.x;
    const int off = cluster.block_rank() * share;
    const int mine = min(cols - off, share);  // none or less for the last blocks of a short row
    const half* x_share = x + blockIdx.x / ranks * static_cast<int64_t>(cols) + off;
    half* y_share = y + blockIdx.x / ranks * static_cast<int64_t>(cols) + off;
    float x_rmem[HELD] = {};  // what the share does not reach stays 0
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
        if (col < mine) load<Pack>(x_rmem + i, x_share + col);
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; ++i) sum += x_rmem[i] * x_rmem[i];
    sum = block_reduce_sum(sum, partial_smem);
    // TODO(1): The sum over the row, in every thread of the cluster. The cluster has ranks blocks. (~4 lines)
    if (tid == 0) sum_smem = sum;
    // Every block reads what all blocks of the cluster wrote.
    cluster.sync();
    sum = warp_reduce_sum(lane_id < ranks ? *cluster.map_shared_rank(&sum_smem, lane_id) : 0.0f);
    // END TODO(1)
    // This thread has read the other blocks' sums.
    cluster.barrier_arrive();
    const float scale = rsqrtf(sum / cols + eps);
    // TODO(2): registers -> global: load the weights of this block's columns, and store y, with accesses of type Pack,
    //   nothing past the share. (~10 lines)
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
        if (col < mine) {
            float weight_rmem[VEC<Pack>];
            load<Pack>(weight_rmem, weight + off + col);
#pragma unroll
            for (int j = 0; j < VEC<Pack>; ++j) x_rmem[i + j] = x_rmem[i + j] * scale * weight_rmem[j];
            store<Pack>(y_share + col, x_rmem + i);
        }
    }
    // END TODO(2)
    // Other blocks may still read this block's sum, which ends with the block.
    cluster.barrier_wait();
}

KATA_EXPORT void rms_norm_cluster_f16(
    const half* x, const half* weight, half* y, int rows, int cols, float eps, cudaStream_t stream) {
    // All rows start at a multiple of 16 bytes only if 8 divides cols.
    const auto kernel = cols % 8 == 0 ? rms_norm_cluster_f16_kernel<uint4> : rms_norm_cluster_f16_kernel<half>;
    int ranks = 1;
    // TODO(3): Blocks per row: 1, 2, 4 or MAX_RANKS, as few as hold the row. (~1 line)
    while (ranks < MAX_RANKS && ranks * THREADS * HELD < cols) ranks *= 2;
    // END TODO(3)
    int share = 0;
    // TODO(4): Columns per block. Every share must start at a multiple of 16 bytes in a row that does. (~1 line)
    share = ((cols - 1) / ranks / 8 + 1) * 8;
    // END TODO(4)
    // Just enough warps to hold a share.
    const int warps = (share - 1) / (WARP_SIZE * HELD) + 1;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = ranks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = rows * ranks;
    config.blockDim = warps * WARP_SIZE;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, x, weight, y, cols, share, eps);
}
