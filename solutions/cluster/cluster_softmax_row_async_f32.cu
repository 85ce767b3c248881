// cluster_softmax_row_async_f32: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max), a row on 8 SMs
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows >= 1, cols in 4..458752 and
//            a multiple of 4
// Technique  resident clusters take row after row; a block sends its pair to all blocks of the cluster, and each waits
//            for its 8 messages at an mbarrier; meanwhile the TMA fills a ring with chunks of this row and the next
// New        over cluster_softmax_row_f32: st.async and an mbarrier that counts bytes in place of the cluster's
//            barrier; loads never stop
// Bound      memory bandwidth
#include "kata.cuh"
#include "kata_tma.cuh"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cooperative_groups.h>
#include <cstdint>

namespace cg = cooperative_groups;

// From kata_tma.cuh:
using kata::smem_address, kata::expect, kata::wait, kata::load_bytes;

constexpr int RANKS = 8;  // blocks per cluster
constexpr int THREADS = 512;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int VEC = 4;       // elements per access: float4 is 16 bytes
constexpr int CHUNK = 4096;  // elements of a bulk copy
constexpr int STAGES = 14;   // chunks in the ring: 224 KB, nearly all of an SM's shared memory
constexpr int PLACES = 2;    // rounds whose messages may be in flight to a block
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");
static_assert(RANKS <= WARP_SIZE, "one warp combines the partial results of all blocks");
static_assert(CHUNK % (THREADS * VEC) == 0, "a thread has whole vectors of a chunk, the same number as all others");
static_assert(458752 <= RANKS * STAGES * CHUNK, "the ring holds a block's share of the longest row");

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

// The threads' partial results merged, in every thread. All threads must call it together.
__device__ __forceinline__ Partial block_reduce(Partial value, Partial* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    value = warp_reduce(value);
    // A slow warp may still read the partial results of the call before.
    __syncthreads();
    if (lane_id == 0) partial_smem[warp_id] = value;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    value = warp_reduce(lane_id < WARPS ? partial_smem[lane_id] : nothing());
    return value;
}

// Where block rank of the cluster has what this block has at p (PTX ISA, mapa).
__device__ __forceinline__ uint32_t address_in(const void* p, int rank) {
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(smem_address(p)), "r"(rank));
    return address;
}

// A phase of the barrier ends after count arrivals, and when all bytes that it expects are there (PTX ISA, mbarrier).
__device__ __forceinline__ void barrier_init(uint64_t* barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(barrier)), "r"(count) : "memory");
}

// Makes this thread's barrier_init visible to the cluster, once it has passed the cluster's barrier.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Stores the pair in the shared memory of block rank, where this block has to_smem. The barrier there counts its 8
// bytes as they arrive (PTX ISA, st.async).
__device__ __forceinline__ void send(Partial* to_smem, Partial value, uint64_t* barrier, int rank) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                     address_in(to_smem, rank)),
                 "f"(value.max), "f"(value.sum), "r"(address_in(barrier, rank))
                 : "memory");
}

// The block's way through its chunks: those of its share of the first row, then of the next row, and so on.
struct Chunk {
    int64_t row;
    int begin;  // its first column in the share
};

// Block rank of a cluster has the columns from rank * share on: share of them, fewer at the end of the row, or none.
__global__ void __launch_bounds__(THREADS) cluster_softmax_row_async_f32_kernel(
    const float* __restrict__ x, float* __restrict__ y, int rows, int cols, int share) {
    extern __shared__ float4 ring_smem[];  // [STAGES][CHUNK / VEC]
    __shared__ Partial partial_smem[WARPS];
    __shared__ Partial inbox_smem[PLACES][RANKS];  // the pairs of the cluster's blocks
    __shared__ uint64_t inbox_barrier[PLACES];     // one per row of inbox_smem
    __shared__ uint64_t ring_barrier[STAGES];      // one per chunk of the ring
    const cg::cluster_group cluster = cg::this_cluster();
    const int tid = threadIdx.x;
    const int lane_id = tid % WARP_SIZE;
    const int rank = cluster.block_rank();
    const int off = rank * share;
    const int mine = min(cols - off, share);
    const int first = blockIdx.x / RANKS;
    const int step = gridDim.x / RANKS;
    // One thread calls this: the copy of a chunk starts, if there is such a row, and next names the chunk after it.
    Chunk next = {first, 0};
    const auto fetch = [&](int stage) {
        if (mine <= 0 || next.row >= rows) return;
        const int bytes = min(mine - next.begin, CHUNK) * static_cast<int>(sizeof(float));
        expect(&ring_barrier[stage], bytes);
        load_bytes(
            ring_smem + stage * (CHUNK / VEC), x + next.row * cols + off + next.begin, bytes, &ring_barrier[stage]);
        next.begin += CHUNK;
        if (next.begin >= mine) next = {next.row + step, 0};
    };
    // TODO(1): Prepare the barriers: one arrival per phase, by the thread that says how many bytes the block expects.
    //   No block may send before the receiver's barriers are ready. (~6 lines)
    if (tid == 0) {
        for (uint64_t& barrier : inbox_barrier) barrier_init(&barrier, 1);
        for (uint64_t& barrier : ring_barrier) barrier_init(&barrier, 1);
        barrier_init_fence();
    }
    // The other blocks' barriers are ready, too.
    cluster.sync();
    // END TODO(1)
    if (tid == 0)
        for (int stage = 0; stage < STAGES; ++stage) fetch(stage);
    // Where the row's first chunk is in the ring, and how often the ring was filled before.
    int stage = 0, lap = 0;
    int round = 0;
    for (int64_t row = first; row < rows; row += step) {
        Partial whole = nothing();
        int at = stage, parity = lap % 2;
        for (int begin = 0; begin < mine; begin += CHUNK) {
            wait(&ring_barrier[at], parity);
            Partial part = nothing();
            alignas(float4) float x_rmem[CHUNK / THREADS];
#pragma unroll
            for (int i = 0; i < CHUNK / THREADS; i += VEC) {
                const int col = i * THREADS + tid * VEC;
                float4 x4 = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
                if (begin + col < mine) x4 = ring_smem[at * (CHUNK / VEC) + col / VEC];
                *reinterpret_cast<float4*>(x_rmem + i) = x4;
            }
#pragma unroll
            for (const float value : x_rmem) part.max = fmaxf(part.max, value);
#pragma unroll
            for (const float value : x_rmem) part.sum += __expf(value - part.max);
            whole = merge(whole, part);
            if (++at == STAGES) at = 0, parity ^= 1;
        }
        whole = block_reduce(whole, partial_smem);
        int place = 0, phase = 0;
        // TODO(2): The place of this round's messages, and the parity of its barrier's phase. A fast block may send the
        //   next round's pair while a slow block still waits for this round's. (~2 lines)
        // It cannot be two rounds ahead: it waits for the slow block's pair of the round in between.
        place = round % PLACES;
        phase = round / PLACES % 2;
        // END TODO(2)
        // TODO(3): Expect the pairs of all blocks, and send this block's pair to each of them, its own included: to
        //   place rank of their inbox. (~2 lines)
        if (tid == 0) expect(&inbox_barrier[place], RANKS * sizeof(Partial));
        if (tid < RANKS) send(&inbox_smem[place][rank], whole, &inbox_barrier[place], tid);
        // END TODO(3)
        // TODO(4): The pair of the whole row, in every thread. (~2 lines)
        wait(&inbox_barrier[place], phase);
        whole = warp_reduce(lane_id < RANKS ? inbox_smem[place][lane_id] : nothing());
        // END TODO(4)
        ++round;
        const float scale = 1.0f / whole.sum;
        float* y_share = y + row * cols + off;
        for (int begin = 0; begin < mine; begin += CHUNK) {
#pragma unroll
            for (int i = 0; i < CHUNK / THREADS; i += VEC) {
                const int col = i * THREADS + tid * VEC;
                if (begin + col < mine) {
                    float4 x4 = ring_smem[stage * (CHUNK / VEC) + col / VEC];
                    x4.x = __expf(x4.x - whole.max) * scale;
                    x4.y = __expf(x4.y - whole.max) * scale;
                    x4.z = __expf(x4.z - whole.max) * scale;
                    x4.w = __expf(x4.w - whole.max) * scale;
                    __stcs(reinterpret_cast<float4*>(y_share + begin + col), x4);
                }
            }
            // TODO(5): Refill this chunk of the ring as soon as no thread of the block needs it any more. (~2 lines)
            __syncthreads();
            if (tid == 0) fetch(stage);
            // END TODO(5)
            if (++stage == STAGES) stage = 0, ++lap;
        }
    }
    // No last barrier: a block ends after it has received everything that other blocks send to it.
}

KATA_EXPORT void cluster_softmax_row_async_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // Columns per block: every share starts at a multiple of 16 bytes.
    const int share = ((cols - 1) / RANKS / VEC + 1) * VEC;
    const int smem_bytes = STAGES * CHUNK * static_cast<int>(sizeof(float));
    // Without this attribute a launch gets at most 48 KB of dynamic shared memory.
    cudaFuncSetAttribute(cluster_softmax_row_async_f32_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = RANKS;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = RANKS;
    config.blockDim = THREADS;
    config.dynamicSmemBytes = smem_bytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    // As many clusters as fit on the device, but at most one per row.
    int clusters = 0;
    cudaOccupancyMaxActiveClusters(&clusters, cluster_softmax_row_async_f32_kernel, &config);
    config.gridDim = std::min(clusters, rows) * RANKS;
    cudaLaunchKernelEx(&config, cluster_softmax_row_async_f32_kernel, x, y, rows, cols, share);
}
