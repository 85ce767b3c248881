// layer_norm_cluster_f16: y[row, col] = (x[row, col] - mean) / sqrt(variance + eps) * weight[col] + bias[col]
//
// Shapes     x, y: [rows, cols], weight, bias: [cols] f16, row-major, contiguous, 16-byte aligned bases, any rows >= 1,
//            cols in 8..131072 and a multiple of 8
// Technique  the TMA copies shares of rows into a ring in shared memory, next to the block's weights and biases; a
//            thread's mean and squared distances are merged over the warp, the block and the cluster
// New        over rms_norm_cluster_f16: one exchange for mean and variance together, and no registers for loads in
//            flight
// Bound      memory bandwidth
#include "kata.cuh"
#include "kata_tma.cuh"
#include <algorithm>
#include <cooperative_groups.h>
#include <cstdint>
#include <cuda_fp16.h>

namespace cg = cooperative_groups;

// From kata_tma.cuh:
using kata::smem_address, kata::expect, kata::wait, kata::load_bytes;

constexpr int MAX_RANKS = 8;  // blocks of the largest cluster: every card with clusters has room for it
constexpr int THREADS = 512;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int VEC = 8;     // elements per access: uint4 is 16 bytes
constexpr int HELD = 32;   // elements of the row for each thread
constexpr int STAGES = 1;  // shares in the ring
constexpr int BLOCKS_PER_SM = 2;
constexpr int PLACES = 2;  // for a block's moments: of this row, and of the row before
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");
static_assert(MAX_RANKS <= WARP_SIZE, "one warp combines the partial results of all blocks");

// Some elements of a row: how many, their mean, and the sum of their squared distances from it.
struct Moments {
    float count;
    float mean;
    float squares;
};

// The moments of the elements of both (Chan, Golub and LeVeque, 1979).
__device__ __forceinline__ Moments merge(Moments a, Moments b) {
    Moments merged = {};
    // TODO(1): Merge them without a difference of large sums. Either may have no elements. (~6 lines)
    merged.count = a.count + b.count;
    const float part = b.count > 0.0f ? b.count / merged.count : 0.0f;
    const float distance = b.mean - a.mean;
    merged.mean = a.mean + distance * part;
    merged.squares = a.squares + b.squares + distance * distance * a.count * part;
    // END TODO(1)
    return merged;
}

// The lanes' moments merged, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ Moments warp_reduce(Moments value) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
        const float count = __shfl_xor_sync(FULL_MASK, value.count, offset);
        const float mean = __shfl_xor_sync(FULL_MASK, value.mean, offset);
        const float squares = __shfl_xor_sync(FULL_MASK, value.squares, offset);
        value = merge(value, {count, mean, squares});
    }
    return value;
}

// The threads' moments merged, in every thread. All threads must call it together.
__device__ __forceinline__ Moments block_reduce(Moments value, Moments* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    value = warp_reduce(value);
    // A slow warp may still read the partial results of the previous call.
    __syncthreads();
    if (lane_id == 0) partial_smem[warp_id] = value;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    value = warp_reduce(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : Moments{});
    return value;
}

// A phase of the barrier ends after count arrivals, and when all bytes that it expects are there (PTX ISA, mbarrier).
__device__ __forceinline__ void barrier_init(uint64_t* barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(barrier)), "r"(count) : "memory");
}

// global or shared -> registers: from[0..VEC-1] as floats
__device__ __forceinline__ void load(float* to_rmem, const half* from) {
    alignas(uint4) half pack_rmem[VEC];
    *reinterpret_cast<uint4*>(pack_rmem) = *reinterpret_cast<const uint4*>(from);
#pragma unroll
    for (int i = 0; i < VEC; ++i) to_rmem[i] = __half2float(pack_rmem[i]);
}

// registers -> global: to[0..VEC-1], each rounded once; never read here, so the caches evict it first
__device__ __forceinline__ void stream_out(half* to, const float* from_rmem) {
    alignas(uint4) half pack_rmem[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) pack_rmem[i] = __float2half(from_rmem[i]);
    __stcs(reinterpret_cast<uint4*>(to), *reinterpret_cast<const uint4*>(pack_rmem));
}

// Block rank of a cluster has the columns from rank * share on: share of them, fewer at the end of the row, or none.
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) layer_norm_cluster_f16_kernel(
    const half* __restrict__ x, const half* __restrict__ weight, const half* __restrict__ bias, half* __restrict__ y,
    int rows, int cols, int share, float eps) {
    extern __shared__ uint4 dynamic_smem[];
    __shared__ Moments partial_smem[WARPS];
    __shared__ Moments block_smem[PLACES];                      // of this block's columns, for the other blocks
    __shared__ uint64_t barrier_smem[STAGES];                   // one per share of the ring
    half* weight_smem = reinterpret_cast<half*>(dynamic_smem);  // [share]
    half* bias_smem = weight_smem + share;                      // [share]
    half* ring_smem = bias_smem + share;                        // [STAGES][share]
    const cg::cluster_group cluster = cg::this_cluster();
    const int ranks = cluster.num_blocks();
    const int tid = threadIdx.x;
    const int lane_id = tid % WARP_SIZE;
    const int threads = blockDim.x;
    const int off = cluster.block_rank() * share;
    const int mine = max(min(cols - off, share), 0);
    const int first = blockIdx.x / ranks;
    const int step = gridDim.x / ranks;
    // Starts the copy of this block's columns of a row. The barrier's phase ends when it is there.
    const auto fetch = [&](int64_t row, int stage) {
        const int bytes = mine * static_cast<int>(sizeof(half));
        // TODO(2): One thread calls this. A block without columns copies nothing, and its phases end at once.
        //   (~2 lines)
        expect(&barrier_smem[stage], bytes);
        if (bytes > 0) load_bytes(ring_smem + stage * share, x + row * cols + off, bytes, &barrier_smem[stage]);
        // END TODO(2)
    };
    // The weights and biases of this block's columns stay for all rows. A thread reads only what it wrote itself.
    for (int col = tid * VEC; col < mine; col += threads * VEC) {
        *reinterpret_cast<uint4*>(weight_smem + col) = *reinterpret_cast<const uint4*>(weight + off + col);
        *reinterpret_cast<uint4*>(bias_smem + col) = *reinterpret_cast<const uint4*>(bias + off + col);
    }
    if (tid == 0) {
        for (int stage = 0; stage < STAGES; ++stage) barrier_init(&barrier_smem[stage], 1);
        for (int stage = 0; stage < STAGES; ++stage)
            if (first + stage * step < rows) fetch(first + stage * step, stage);
    }
    // The barriers are ready for all threads.
    __syncthreads();
    int round = 0;
    for (int64_t row = first; row < rows; row += step) {
        const int stage = round % STAGES;
        wait(&barrier_smem[stage], round / STAGES % 2);
        const half* share_smem = ring_smem + stage * share;
        float x_rmem[HELD] = {};  // what the share does not reach stays 0
        int held = 0;             // elements in x_rmem
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < HELD; i += VEC) {
            const int col = i * threads + tid * VEC;
            if (col < mine) {
                load(x_rmem + i, share_smem + col);
                held += VEC;
            }
        }
#pragma unroll
        for (int i = 0; i < HELD; ++i) sum += x_rmem[i];
        Moments whole = {};
        // TODO(3): The moments of this thread's elements. Registers past the share hold no element. (~7 lines)
        whole.count = held;
        whole.mean = held > 0 ? sum / held : 0.0f;
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const float distance = i < held ? x_rmem[i] - whole.mean : 0.0f;
            whole.squares += distance * distance;
        }
        // END TODO(3)
        whole = block_reduce(whole, partial_smem);
        // TODO(4): Refill this share of the ring as soon as no thread of the block needs it any more. (~2 lines)
        // All threads have their elements in registers: they have passed the barriers of block_reduce.
        const int64_t later = row + int64_t{STAGES} * step;
        if (tid == 0 && later < rows) fetch(later, stage);
        // END TODO(4)
        // TODO(5): The moments of the row, in every thread of the cluster, with one barrier of the cluster per row.
        //   The cluster has ranks blocks. (~5 lines)
        Moments* place_smem = &block_smem[round % PLACES];
        if (tid == 0) *place_smem = whole;
        // Every block reads what all blocks of the cluster wrote.
        cluster.sync();
        whole = warp_reduce(lane_id < ranks ? *cluster.map_shared_rank(place_smem, lane_id) : Moments{});
        // END TODO(5)
        ++round;
        const float scale = rsqrtf(whole.squares / cols + eps);
        half* y_share = y + row * cols + off;
#pragma unroll
        for (int i = 0; i < HELD; i += VEC) {
            const int col = i * threads + tid * VEC;
            if (col < mine) {
                float weight_rmem[VEC], bias_rmem[VEC];
                load(weight_rmem, weight_smem + col);
                load(bias_rmem, bias_smem + col);
#pragma unroll
                for (int j = 0; j < VEC; ++j)
                    x_rmem[i + j] = (x_rmem[i + j] - whole.mean) * scale * weight_rmem[j] + bias_rmem[j];
                stream_out(y_share + col, x_rmem + i);
            }
        }
    }
    // Other blocks may still read this block's last moments, which end with the block.
    cluster.sync();
}

KATA_EXPORT void layer_norm_cluster_f16(
    const half* x, const half* weight, const half* bias, half* y, int rows, int cols, float eps, cudaStream_t stream) {
    // Blocks per row: as few as hold the row.
    int ranks = 1;
    while (ranks < MAX_RANKS && ranks * THREADS * HELD < cols) ranks *= 2;
    // Columns per block: every share starts at a multiple of 16 bytes.
    const int share = ((cols - 1) / ranks / VEC + 1) * VEC;
    // Just enough warps to hold a share.
    const int warps = (share - 1) / (WARP_SIZE * HELD) + 1;
    const int smem_bytes = (2 + STAGES) * share * static_cast<int>(sizeof(half));
    // Without this attribute a launch gets at most 48 KB of dynamic shared memory.
    cudaFuncSetAttribute(layer_norm_cluster_f16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = ranks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = ranks;
    config.blockDim = warps * WARP_SIZE;
    config.dynamicSmemBytes = smem_bytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    // As many clusters as fit on the device, but at most one per row.
    int clusters = 0;
    cudaOccupancyMaxActiveClusters(&clusters, layer_norm_cluster_f16_kernel, &config);
    config.gridDim = std::min(clusters, rows) * ranks;
    cudaLaunchKernelEx(&config, layer_norm_cluster_f16_kernel, x, weight, bias, y, rows, cols, share, eps);
}
