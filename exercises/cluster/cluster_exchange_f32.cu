// cluster_exchange_f32: y[row, col] = x[row, col] - x[row before it in its group of 4, col]; row 0 of a group: the last
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1; the last group
//            has 1 to 4 rows
// Technique  one block per row, one cluster per group; a block writes its tile into the shared memory of the next block
// New        over softmax_backward_split_f32: blocks exchange data through distributed shared memory and the cluster's
//            barrier, not through messages in global memory
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cooperative_groups.h>
#include <cstdint>

namespace cg = cooperative_groups;

constexpr int RANKS = 4;  // blocks per cluster, rows per group
constexpr int THREADS = 256;
constexpr int HELD = 16;              // elements of a tile for each thread
constexpr int TILE = THREADS * HELD;  // columns that a block exchanges at a time

// Pack is what one access moves. Its VEC elements divide cols: a vector lies in the row as a whole or not at all, and
// every row starts at a multiple of its size.
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

template <typename Pack>
__global__ void __launch_bounds__(THREADS)
    cluster_exchange_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    alignas(float4) __shared__ float tile_smem[TILE];  // of the row before, which its block writes
    const cg::cluster_group cluster = cg::this_cluster();
    const int rank = cluster.block_rank();
    const int members = min(RANKS, rows - static_cast<int>(blockIdx.x) + rank);  // blocks of this cluster with a row
    // The barrier does not wait for threads that have exited, and no block uses the tile of one without a row.
    if (rank >= members) return;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    float* next_smem = nullptr;
    // TODO(1): The tile of the block that has the next row of the group. After the group's last row comes its first.
    //   (~1 line)
    // END TODO(1)
    for (int64_t begin = 0; begin < cols; begin += TILE) {
        alignas(Pack) float x_rmem[HELD];
#pragma unroll
        for (int i = 0; i < HELD; i += VEC<Pack>) {
            const int col = i * THREADS + threadIdx.x * VEC<Pack>;
            if (begin + col < cols) load<Pack>(x_rmem + i, x_row + begin + col);
        }
        // TODO(2): registers -> the next block's tile, column col to place col, nothing past the row. When may a
        //   thread write there, and when may the next block read? (~7 lines)
        // END TODO(2)
#pragma unroll
        for (int i = 0; i < HELD; i += VEC<Pack>) {
            const int col = i * THREADS + threadIdx.x * VEC<Pack>;
            if (begin + col < cols) {
                alignas(Pack) float before_rmem[VEC<Pack>];
                load<Pack>(before_rmem, tile_smem + col);
#pragma unroll
                for (int j = 0; j < VEC<Pack>; ++j) x_rmem[i + j] -= before_rmem[j];
                store<Pack>(y_row + begin + col, x_rmem + i);
            }
        }
    }
}

KATA_EXPORT void cluster_exchange_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // All rows start at a multiple of 16 bytes only where cols is a multiple of 4.
    const auto kernel = cols % 4 == 0 ? cluster_exchange_f32_kernel<float4> : cluster_exchange_f32_kernel<float>;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = RANKS;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    // A grid has only whole clusters.
    config.gridDim = ((rows - 1) / RANKS + 1) * RANKS;
    config.blockDim = THREADS;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, x, y, rows, cols);
}
