// layer_norm_cluster_f16: y[row, col] = (x[row, col] - mean) / sqrt(variance + eps) * weight[col] + bias[col]
//
// Shapes     x, y: [rows, cols], weight, bias: [cols] f16, row-major, contiguous, 16-byte aligned bases, any rows >= 1,
//            cols in 8..131072 and a multiple of 8
// Technique  the TMA copies a block's share of the row into shared memory; a thread's mean and squared distances are
//            merged over the warp, the block and the cluster
// New        over rms_norm_cluster_f16: one exchange for mean and variance together, and no registers for loads in
//            flight
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
constexpr int VEC = 8;    // elements per access: uint4 is 16 bytes
constexpr int HELD = 32;  // elements of the row for each thread
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

// The threads' moments merged, in every thread. All threads must call it together, and once in a kernel.
__device__ __forceinline__ Moments block_reduce(Moments value, Moments* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    value = warp_reduce(value);
    if (lane_id == 0) partial_smem[warp_id] = value;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    value = warp_reduce(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : Moments{});
    return value;
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// A phase of the barrier ends after count arrivals, and when all bytes that it expects are there (PTX ISA, mbarrier).
__device__ __forceinline__ void barrier_init(uint64_t* barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

// Arrives, and adds to the bytes that the phase expects.
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Waits for the end of the phase with this parity: 0 for a barrier's first phase, 1 for the second, and so on.
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "AGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra AGAIN;\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// global -> shared: a multiple of 16 bytes, from and to multiples of 16 bytes. One thread starts the copy, and the
// barrier counts its bytes as they arrive (PTX ISA, cp.async.bulk).
__device__ __forceinline__ void copy_bulk(void* to_smem, const void* from, int bytes, uint64_t* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to_smem)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// global or shared -> registers: from[0..VEC-1] as floats
__device__ __forceinline__ void load(float* to_rmem, const half* from) {
    alignas(uint4) half pack_rmem[VEC];
    *reinterpret_cast<uint4*>(pack_rmem) = *reinterpret_cast<const uint4*>(from);
#pragma unroll
    for (int i = 0; i < VEC; ++i) to_rmem[i] = __half2float(pack_rmem[i]);
}

// registers -> global: to[0..VEC-1], each rounded once
__device__ __forceinline__ void store(half* to, const float* from_rmem) {
    alignas(uint4) half pack_rmem[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) pack_rmem[i] = __float2half(from_rmem[i]);
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(pack_rmem);
}

// Block rank of a cluster has the columns from rank * share on, as many as share, or fewer at the end of the row.
__global__ void __launch_bounds__(THREADS, 2) layer_norm_cluster_f16_kernel(
    const half* __restrict__ x, const half* __restrict__ weight, const half* __restrict__ bias, half* __restrict__ y,
    int cols, int share, float eps) {
    extern __shared__ uint4 dynamic_smem[];
    __shared__ Moments partial_smem[WARPS];
    __shared__ Moments block_smem;  // of this block's columns, for the other blocks
    __shared__ uint64_t barrier_smem;
    half* share_smem = reinterpret_cast<half*>(dynamic_smem);  // [share]
    const cg::cluster_group cluster = cg::this_cluster();
    const int ranks = cluster.num_blocks();
    const int tid = threadIdx.x;
    const int lane_id = tid % WARP_SIZE;
    const int threads = blockDim.x;
    const int off = cluster.block_rank() * share;
    const int mine = max(min(cols - off, share), 0);
    const half* x_share = x + blockIdx.x / ranks * static_cast<int64_t>(cols) + off;
    half* y_share = y + blockIdx.x / ranks * static_cast<int64_t>(cols) + off;
    // TODO(2): One thread has the block's columns copied to share_smem. No thread may read them before they are there,
    //   or ask the barrier before it is ready. A block without columns copies nothing. (~8 lines)
    // END TODO(2)
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
    Moments row = {};
    // TODO(3): The moments of this thread's elements. Registers past the share hold no element. (~7 lines)
    // END TODO(3)
    row = block_reduce(row, partial_smem);
    // TODO(4): The moments of the row, in every thread of the cluster. The cluster has ranks blocks. (~4 lines)
    // END TODO(4)
    // This thread has read the other blocks' moments.
    cluster.barrier_arrive();
    const float scale = rsqrtf(row.squares / cols + eps);
#pragma unroll
    for (int i = 0; i < HELD; i += VEC) {
        const int col = i * threads + tid * VEC;
        if (col < mine) {
            float weight_rmem[VEC], bias_rmem[VEC];
            load(weight_rmem, weight + off + col);
            load(bias_rmem, bias + off + col);
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                x_rmem[i + j] = (x_rmem[i + j] - row.mean) * scale * weight_rmem[j] + bias_rmem[j];
            store(y_share + col, x_rmem + i);
        }
    }
    // Other blocks may still read this block's moments, which end with the block.
    cluster.barrier_wait();
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
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = ranks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = rows * ranks;
    config.blockDim = warps * WARP_SIZE;
    config.dynamicSmemBytes = share * sizeof(half);
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, layer_norm_cluster_f16_kernel, x, weight, bias, y, cols, share, eps);
}
