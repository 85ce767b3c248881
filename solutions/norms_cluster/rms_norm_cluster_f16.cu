// rms_norm_cluster_f16: y[row, col] = x[row, col] / sqrt(mean of x^2 over the row + eps) * weight[col]
//
// Shapes     x, y: [rows, cols], weight: [cols] f16, row-major, contiguous, 16-byte aligned bases, any rows >= 1, cols
//            in 8..131072 and a multiple of 8
// Technique  resident clusters take row after row; a cluster has as many blocks as hold a row in registers, and a block
//            keeps the weights of its columns
// New        over rms_norm_f16x8_pack_f32: a row that is too long for one block, and weights that are loaded once; over
//            cluster_softmax_row_f32: the cluster's size follows the row, and one barrier per row is enough
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
constexpr int VEC = 8;             // elements per access: uint4 is 16 bytes
constexpr int PACKS = 4;           // accesses of a thread per row
constexpr int HELD = PACKS * VEC;  // elements of the row that a thread keeps in registers
constexpr int PLACES = 2;          // for a block's sums: of this row, and of the row before
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

// The sum over the block's threads, in every thread. All threads must call it together.
__device__ __forceinline__ float block_reduce_sum(float sum, float* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    // A slow warp may still read the partial sums of the previous call.
    __syncthreads();
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : 0.0f);
    return sum;
}

// global -> registers: HELD of the first cols elements per thread, 0 past them
__device__ __forceinline__ void load(uint4* to_rmem, const half* from, int cols) {
#pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const int col = (i * blockDim.x + threadIdx.x) * VEC;
        to_rmem[i] = col < cols ? *reinterpret_cast<const uint4*>(from + col) : uint4{};
    }
}

// One access as floats.
__device__ __forceinline__ void widen(float* to_rmem, const uint4& pack) {
    const half* from = reinterpret_cast<const half*>(&pack);
#pragma unroll
    for (int j = 0; j < VEC; ++j) to_rmem[j] = __half2float(from[j]);
}

// Floats as one access, each rounded once.
__device__ __forceinline__ uint4 narrow(const float* from_rmem) {
    uint4 pack;
    half* to = reinterpret_cast<half*>(&pack);
#pragma unroll
    for (int j = 0; j < VEC; ++j) to[j] = __float2half(from_rmem[j]);
    return pack;
}

// Two blocks per SM: at most 64 registers per thread, and one block loads while the other computes.
// Block rank of a cluster has the columns from rank * share on: share of them, fewer at the end of the row, or none.
__global__ void __launch_bounds__(THREADS, 2) rms_norm_cluster_f16_kernel(
    const half* __restrict__ x, const half* __restrict__ weight, half* __restrict__ y, int rows, int cols, int share,
    float eps) {
    extern __shared__ uint4 weight_smem[];  // [share / VEC]
    __shared__ float partial_smem[WARPS];
    __shared__ float sum_smem[PLACES];  // of this block's columns, for the other blocks
    const cg::cluster_group cluster = cg::this_cluster();
    const int ranks = cluster.num_blocks();
    const int tid = threadIdx.x;
    const int lane_id = tid % WARP_SIZE;
    const int off = cluster.block_rank() * share;
    const int mine = min(cols - off, share);
    const int first = blockIdx.x / ranks;
    const int step = gridDim.x / ranks;
    // The weights of this block's columns stay for all rows. A thread reads only what it wrote itself.
    for (int col = tid * VEC; col < mine; col += blockDim.x * VEC)
        weight_smem[col / VEC] = *reinterpret_cast<const uint4*>(weight + off + col);
    uint4 next_rmem[PACKS];
    load(next_rmem, x + first * int64_t{cols} + off, mine);
    int place = 0;
    for (int64_t row = first; row < rows; row += step) {
        uint4 x_rmem[PACKS];
        // TODO(1): This row's elements, which are in flight since the row before. Then ask for the next row, if there
        //   is one: its loads take as long as this row's sums. (~3 lines)
#pragma unroll
        for (int i = 0; i < PACKS; ++i) x_rmem[i] = next_rmem[i];
        if (row + step < rows) load(next_rmem, x + (row + step) * cols + off, mine);
        // END TODO(1)
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < PACKS; ++i) {
            float x_wide[VEC];
            widen(x_wide, x_rmem[i]);
#pragma unroll
            for (int j = 0; j < VEC; ++j) sum += x_wide[j] * x_wide[j];
        }
        sum = block_reduce_sum(sum, partial_smem);
        // TODO(2): The sum over the row, in every thread of the cluster, with one barrier of the cluster per row. The
        //   cluster has ranks blocks. Another block may still read this block's sum of the row before. (~5 lines)
        // It cannot still read that of two rows before: it has arrived at the barrier of the row in between.
        if (tid == 0) sum_smem[place] = sum;
        // Every block reads what all blocks of the cluster wrote.
        cluster.sync();
        sum = warp_reduce_sum(lane_id < ranks ? *cluster.map_shared_rank(&sum_smem[place], lane_id) : 0.0f);
        place = 1 - place;
        // END TODO(2)
        const float scale = rsqrtf(sum / cols + eps);
        half* y_share = y + row * cols + off;
#pragma unroll
        for (int i = 0; i < PACKS; ++i) {
            const int col = (i * blockDim.x + tid) * VEC;
            if (col < mine) {
                float x_wide[VEC], weight_wide[VEC];
                widen(x_wide, x_rmem[i]);
                widen(weight_wide, weight_smem[col / VEC]);
#pragma unroll
                for (int j = 0; j < VEC; ++j) x_wide[j] = x_wide[j] * scale * weight_wide[j];
                __stcs(reinterpret_cast<uint4*>(y_share + col), narrow(x_wide));
            }
        }
    }
    // TODO(3): A block's shared memory ends with the block. (~1 line)
    // Other blocks may still read this block's last sum.
    cluster.sync();
    // END TODO(3)
}

KATA_EXPORT void rms_norm_cluster_f16(
    const half* x, const half* weight, half* y, int rows, int cols, float eps, cudaStream_t stream) {
    int ranks = 1;
    // TODO(4): Blocks per row: 1, 2, 4 or MAX_RANKS, as few as hold the row. (~1 line)
    while (ranks < MAX_RANKS && ranks * THREADS * HELD < cols) ranks *= 2;
    // END TODO(4)
    int share = 0;
    // TODO(5): Columns per block. Every share must start at a multiple of 16 bytes. (~1 line)
    share = ((cols - 1) / ranks / VEC + 1) * VEC;
    // END TODO(5)
    // Just enough warps to hold a share.
    const int warps = (share - 1) / (WARP_SIZE * HELD) + 1;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = ranks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = ranks;
    config.blockDim = warps * WARP_SIZE;
    config.dynamicSmemBytes = share * sizeof(half);
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    // As many clusters as fit on the device, but at most one per row.
    int clusters = 0;
    cudaOccupancyMaxActiveClusters(&clusters, rms_norm_cluster_f16_kernel, &config);
    config.gridDim = std::min(clusters, rows) * ranks;
    cudaLaunchKernelEx(&config, rms_norm_cluster_f16_kernel, x, weight, y, rows, cols, share, eps);
}
