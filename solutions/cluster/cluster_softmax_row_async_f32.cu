// cluster_softmax_row_async_f32: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max), a row on 8 SMs
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows >= 1, cols in 1..458752
// Technique  resident clusters take row after row; a block sends its pair to all blocks of the cluster, and each waits
//            for its own 8 messages at an mbarrier
// New        over cluster_softmax_row_f32: st.async and an mbarrier that counts bytes in place of the cluster's barrier;
//            while the messages are in flight, so are loads of the next row
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
constexpr int BLOCKS_PER_SM = 3;  // where a share has at most 64 KB: while one waits, the others load
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int BATCH = 16;  // elements that a thread asks for before it needs the first
constexpr int PLACES = 2;  // rounds whose messages may be in flight to a block
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

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Where block rank of the cluster has what this block has at p (PTX ISA, mapa).
__device__ __forceinline__ uint32_t address_in(const void* p, int rank) {
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(p)), "r"(rank));
    return address;
}

// A phase of the barrier ends after count arrivals, and when all bytes that it expects are there (PTX ISA, mbarrier).
__device__ __forceinline__ void barrier_init(uint64_t* barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

// Makes this thread's barrier_init visible to the cluster, once it has passed the cluster's barrier.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
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

// Stores the pair in the shared memory of block rank, where this block has to_smem. The barrier there counts its 8 bytes
// as they arrive (PTX ISA, st.async).
__device__ __forceinline__ void send(Partial* to_smem, Partial value, uint64_t* barrier, int rank) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                     address_in(to_smem, rank)),
                 "f"(value.max), "f"(value.sum), "r"(address_in(barrier, rank))
                 : "memory");
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

// global -> registers: BATCH columns per thread, from column begin of a share of cols columns; -inf past it
template <typename Pack>
__device__ __forceinline__ void load_batch(float* x_rmem, const float* x_share, int begin, int cols) {
#pragma unroll
    for (int i = 0; i < BATCH; i += VEC<Pack>) {
        const int col = begin + i * THREADS + threadIdx.x * VEC<Pack>;
#pragma unroll
        for (int j = i; j < i + VEC<Pack>; ++j) x_rmem[j] = -INFINITY;
        if (col < cols) load<Pack>(x_rmem + i, x_share + col);
    }
}

// Block rank of a cluster has the columns from rank * share on, as many as share, or fewer at the end of the row.
template <typename Pack>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) cluster_softmax_row_async_f32_kernel(
    const float* __restrict__ x, float* __restrict__ y, int rows, int cols, int share) {
    extern __shared__ float4 dynamic_smem[];
    __shared__ Partial partial_smem[WARPS];
    __shared__ alignas(16) Partial inbox_smem[PLACES][RANKS];    // the pairs of the cluster's blocks
    __shared__ uint64_t barrier_smem[PLACES];                    // one per row of inbox_smem
    float* share_smem = reinterpret_cast<float*>(dynamic_smem);  // [share]
    const cg::cluster_group cluster = cg::this_cluster();
    const int tid = threadIdx.x;
    const int lane_id = tid % WARP_SIZE;
    const int rank = cluster.block_rank();
    const int off = rank * share;
    const int mine = max(min(cols - off, share), 0);
    const int step = gridDim.x / RANKS;
    const int first = blockIdx.x / RANKS;
    // TODO(1): Prepare the barriers: one arrival per phase, by the thread that says how many bytes the block expects.
    //   No block may send before the receiver's barriers are ready. (~5 lines)
    if (tid == 0) {
        for (uint64_t& barrier : barrier_smem) barrier_init(&barrier, 1);
        barrier_init_fence();
    }
    // The other blocks' barriers are ready, too.
    cluster.sync();
    // END TODO(1)
    alignas(Pack) float x_rmem[BATCH];
    load_batch<Pack>(x_rmem, x + first * int64_t{cols} + off, 0, mine);
    int round = 0;
    for (int row = first; row < rows; row += step) {
        const float* x_share = x + row * int64_t{cols} + off;
        float* y_share = y + row * int64_t{cols} + off;
        Partial whole = nothing();
        for (int begin = 0; begin < mine; begin += BATCH * THREADS) {
            // The first batch is in flight since the row before.
            if (begin > 0) load_batch<Pack>(x_rmem, x_share, begin, mine);
#pragma unroll
            for (int i = 0; i < BATCH; i += VEC<Pack>) {
                const int col = begin + i * THREADS + tid * VEC<Pack>;
                if (col < mine) store<Pack>(share_smem + col, x_rmem + i);
            }
            Partial batch = nothing();
#pragma unroll
            for (const float value : x_rmem) batch.max = fmaxf(batch.max, value);
#pragma unroll
            for (const float value : x_rmem) batch.sum += __expf(value - batch.max);
            whole = merge(whole, batch);
        }
        whole = block_reduce(whole, partial_smem);
        int place = 0, parity = 0;
        // TODO(2): The place of this round's messages, and the parity of its barrier's phase. A fast block may send the
        //   next round's pair while a slow block still waits for this round's. (~2 lines)
        // It cannot be two rounds ahead: it waits for the slow block's pair of the round in between.
        place = round % PLACES;
        parity = round / PLACES % 2;
        // END TODO(2)
        // TODO(3): Expect the pairs of all blocks, and send this block's pair to each of them, its own included: to
        //   place rank of their inbox. (~2 lines)
        if (tid == 0) barrier_expect(&barrier_smem[place], RANKS * sizeof(Partial));
        if (tid < RANKS) send(&inbox_smem[place][rank], whole, &barrier_smem[place], tid);
        // END TODO(3)
        // These loads take as long as the messages do.
        if (row + step < rows) load_batch<Pack>(x_rmem, x_share + int64_t{step} * cols, 0, mine);
        // TODO(4): The pair of the whole row, in every thread. (~2 lines)
        barrier_wait(&barrier_smem[place], parity);
        whole = warp_reduce(lane_id < RANKS ? inbox_smem[place][lane_id] : nothing());
        // END TODO(4)
        ++round;
        const float scale = 1.0f / whole.sum;
        // No barrier for share_smem: no thread reads what another wrote.
        for (int col = tid * VEC<Pack>; col < mine; col += THREADS * VEC<Pack>) {
            alignas(Pack) float y_rmem[VEC<Pack>];
            load<Pack>(y_rmem, share_smem + col);
#pragma unroll
            for (float& value : y_rmem) value = __expf(value - whole.max) * scale;
            store<Pack>(y_share + col, y_rmem);
        }
    }
    // No last barrier: a block ends after it has received everything that other blocks send to it.
}

KATA_EXPORT void cluster_softmax_row_async_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // All rows start at a multiple of 16 bytes only where cols is a multiple of 4.
    const auto kernel =
        cols % 4 == 0 ? cluster_softmax_row_async_f32_kernel<float4> : cluster_softmax_row_async_f32_kernel<float>;
    // Columns per block: every share starts at a multiple of 16 bytes in a row that does.
    const int share = ((cols - 1) / RANKS / 4 + 1) * 4;
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
    // As many clusters as fit on the device, but at most one per row.
    int clusters = 0;
    cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
    config.gridDim = std::min(clusters, rows) * RANKS;
    cudaLaunchKernelEx(&config, kernel, x, y, rows, cols, share);
}
