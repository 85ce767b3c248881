// ce_cluster_ahead_bf16: loss[row] = lse - x[row, target[row]], lse = log(sum of exp(x[row, :])), and x[row, :] becomes
//                        the gradient (exp(x[row, :] - lse) - [column = target[row]]) * g[row]
//
// Shapes     x: [rows, V] bf16, row-major, contiguous, 16-byte aligned base, updated in place, target: [rows] i64 in
//            0..V-1, g, loss: [rows] f32, any rows >= 1, V in 8..262144 and a multiple of 8; logits are -inf or at most
//            2e38 in magnitude
// Technique  resident clusters take row after row; a warp has a slice of every row, which bulk copies load into a ring
//            of the warp's own; it sends the pair of its slice to all blocks of the cluster
// New        over ce_cluster_bf16: a warp sums its slice of the next row before it writes that of this row, so pairs
//            travel under other work; over cluster_softmax_row_async_f32: no barrier of a block, either
// Bound      memory bandwidth; every call gives the same bits
#include "kata.cuh"
#include "kata_tma.cuh"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cooperative_groups.h>
#include <cstdint>
#include <cuda_bf16.h>

namespace cg = cooperative_groups;

// From kata_tma.cuh:
using kata::smem_address, kata::mbarrier_init, kata::expect, kata::wait, kata::load_bytes;

constexpr int MAX_RANKS = 8;  // blocks of the largest cluster: every card with clusters has room for it
constexpr int THREADS = 512;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int MAX_PARTS = MAX_RANKS * WARPS;  // slices of the longest row
constexpr int VEC = 8;                        // logits per access: uint4 is 16 bytes
constexpr int PACKS = 8;                      // accesses of a thread per row
constexpr int VECTORS = WARP_SIZE * PACKS;    // of the largest slice: 4 KB
constexpr int STAGES = 3;                     // slices in a warp's ring: one to write, one to sum, one in flight
constexpr int PLACES = 4;                     // rows whose pairs may be in flight to a block, or not read yet
constexpr float LOG2E = 1.44269504f;          // log2(e)
constexpr float LN2 = 0.693147181f;           // log(2)
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(MAX_RANKS <= WARP_SIZE, "a lane sends to each block");
static_assert(MAX_PARTS % WARP_SIZE == 0, "a lane reads as many pairs as every other");

// The maximum of log2(e) * logit over some logits of a row, and their sum of 2^(log2(e) * logit - maximum).
struct Partial {
    float max;
    float sum;
};

// The pair of no elements. The lowest float stands in for -inf, because -inf - -inf is nan, not 0.
__device__ __forceinline__ Partial nothing() {
    return {-FLT_MAX, 0.0f};
}

// 2^x in one instruction, off by 2 units in the last place at most. A result below 2^-126 becomes 0 (PTX ISA, ex2).
__device__ __forceinline__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The maximum of the warp's values, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_max(float value) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(FULL_MASK, value, offset));
    return value;
}

// The sum of the warp's values, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float value) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(FULL_MASK, value, offset);
    return value;
}

// The VEC logits of a vector as floats: a bf16 is the upper half of a float.
__device__ __forceinline__ void unpack(float (&floats)[VEC], const uint4& vector) {
    const uint32_t words[VEC / 2] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i) {
        floats[2 * i] = __uint_as_float(words[i] << 16);
        floats[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000);
    }
}

// VEC floats as a vector, each rounded to bf16.
__device__ __forceinline__ uint4 pack(const float (&floats)[VEC]) {
    alignas(uint4) __nv_bfloat162 pairs[VEC / 2];
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i) pairs[i] = __floats2bfloat162_rn(floats[2 * i], floats[2 * i + 1]);
    return *reinterpret_cast<const uint4*>(pairs);
}

// shared -> registers: a lane's vectors of the first cols logits of a slice, -inf past them
__device__ __forceinline__ void load(uint4 (&to_rmem)[PACKS], const uint4* from_smem, int cols) {
    constexpr unsigned NOTHING = 0xff80ff80;  // two bf16 of -inf
    const int lane_id = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const int vector = i * WARP_SIZE + lane_id;
        to_rmem[i] = make_uint4(NOTHING, NOTHING, NOTHING, NOTHING);
        if (vector * VEC < cols) to_rmem[i] = from_smem[vector];
    }
}

// The maximum of a thread's logits, two per instruction. A nan is dropped here; it stays in the sum.
__device__ __forceinline__ float max_of(const uint4 (&x_rmem)[PACKS]) {
    __nv_bfloat162 most = __float2bfloat162_rn(-INFINITY);
#pragma unroll
    for (const uint4& vector : x_rmem) {
        const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&vector);
#pragma unroll
        for (int i = 0; i < VEC / 2; ++i) most = __hmax2(most, pairs[i]);
    }
    return fmaxf(__low2float(most), __high2float(most));
}

// Where block rank of the cluster has what this block has at p (PTX ISA, mapa).
__device__ __forceinline__ uint32_t address_in(const void* p, int rank) {
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(smem_address(p)), "r"(rank));
    return address;
}

// Stores the pair in the shared memory of block rank, where this block has to_smem. The barrier there counts its 8
// bytes as they arrive (PTX ISA, st.async).
__device__ __forceinline__ void send(Partial* to_smem, Partial value, uint64_t* barrier, int rank) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                     address_in(to_smem, rank)),
                 "f"(value.max), "f"(value.sum), "r"(address_in(barrier, rank))
                 : "memory");
}

// One block per SM, whose rings are 192 KB: a row that two SMs can hold needs a cluster of two, and such fit anywhere.
// Warp part of a cluster has the columns from part * slice on: slice of them, fewer at the end of the row, or none.
__global__ void __launch_bounds__(THREADS, 1) ce_cluster_ahead_bf16_kernel(
    __nv_bfloat16* x, const int64_t* __restrict__ target, const float* __restrict__ g, float* __restrict__ loss,
    int rows, int V, int slice) {
    alignas(128) extern __shared__ uint4 ring_smem[];  // [warps][STAGES][VECTORS]
    __shared__ Partial inbox_smem[PLACES][MAX_PARTS];  // the pairs of the cluster's warps
    __shared__ uint64_t inbox_barrier[PLACES];         // one per row of inbox_smem
    __shared__ uint64_t full_barrier[WARPS][STAGES];   // one per slice in a ring
    const cg::cluster_group cluster = cg::this_cluster();
    const int ranks = cluster.num_blocks();
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    const int warps = blockDim.x / WARP_SIZE;
    const int parts = ranks * warps;
    const int part = static_cast<int>(cluster.block_rank()) * warps + warp_id;
    const int off = part * slice;
    const int mine = min(V - off, slice);
    const int first = blockIdx.x / ranks;
    const int step = gridDim.x / ranks;
    const int count = (rows - 1 - first) / step + 1;  // rows of this cluster
    // Its k-th row is first + k * step. The warp's slice of it goes to stage k % STAGES of the warp's ring.
    const auto slice_of = [&](int k) { return x + (first + int64_t{k} * step) * V + off; };
    const auto stage_of = [&](int k) { return ring_smem + (warp_id * STAGES + k % STAGES) * VECTORS; };
    // One lane calls this: the copy of the slice starts, if there is one.
    const auto fetch = [&](int k) {
        if (k >= count || mine <= 0) return;
        uint64_t* full = &full_barrier[warp_id][k % STAGES];
        const int bytes = mine * static_cast<int>(sizeof(__nv_bfloat16));
        expect(full, bytes);
        load_bytes(stage_of(k), slice_of(k), bytes, full);
    };
    if (tid == 0) {
        for (uint64_t& barrier : inbox_barrier) mbarrier_init(&barrier, 1);
        for (auto& ring : full_barrier)
            for (uint64_t& barrier : ring) mbarrier_init(&barrier, 1);
    }
    // No block sends before the receiver's barriers are ready.
    cluster.sync();
    if (lane_id == 0)
        for (int k = 0; k < STAGES; ++k) fetch(k);
    for (int k = 0; k <= count; ++k) {
        // Row k is summed here, and row k - 1 is written.
        int hit = -1;  // the target of row k - 1 among this warp's columns, if it is there
        float row_g = 0.0f;
        const int64_t row = first + int64_t{k - 1} * step;
        if (k > 0) {
            hit = static_cast<int>(target[row]) - off;
            row_g = g[row];
        }
        if (k < count) {
            if (mine > 0) wait(&full_barrier[warp_id][k % STAGES], k / STAGES % 2);
            uint4 x_rmem[PACKS];
            load(x_rmem, stage_of(k), mine);
            Partial pair = nothing();
            // TODO(1): The pair of the warp's logits, in every lane. Some of them may be -inf, or all. (~9 lines)
            // END TODO(1)
            // TODO(2): Send the pair to all blocks of the cluster, to place k % PLACES of their inboxes. Each block
            //   expects parts pairs for the row. (~3 lines)
            // END TODO(2)
        }
        if (k > 0) {
            Partial all = nothing();
            // TODO(3): The pair of row k - 1, in every lane. (~11 lines)
            // END TODO(3)
            const float scale = row_g / all.sum;
            const uint4* x_smem = stage_of(k - 1);
            __nv_bfloat16* dx = slice_of(k - 1);
#pragma unroll
            for (int i = 0; i < PACKS; ++i) {
                const int vector = i * WARP_SIZE + lane_id;
                if (vector * VEC < mine) {
                    float logits[VEC];
                    unpack(logits, x_smem[vector]);
                    // TODO(4): Turn the logits into their gradients, but for the target's one-hot. (~2 lines)
                    // END TODO(4)
                    __stcs(reinterpret_cast<uint4*>(dx) + vector, pack(logits));
                }
            }
            // TODO(5): The lane that has stored the target's vector stores the row's loss, and the one gradient again.
            //   (~6 lines)
            // END TODO(5)
            // TODO(6): Refill the stage as soon as no lane of the warp needs it any more. (~2 lines)
            // END TODO(6)
        }
    }
    // No last barrier: a block ends after it has received everything that other blocks send to it.
}

KATA_EXPORT void ce_cluster_ahead_bf16(
    __nv_bfloat16* x, const int64_t* target, const float* g, float* loss, int rows, int V, cudaStream_t stream) {
    // Blocks per row: 1, 2, 4 or MAX_RANKS, as few as hold it.
    int ranks = 1;
    while (ranks < MAX_RANKS && ranks * WARPS * VECTORS * VEC < V) ranks *= 2;
    // Just enough warps per block, and columns per warp: every slice starts at a multiple of 16 bytes.
    const int warps = (V - 1) / (ranks * VECTORS * VEC) + 1;
    const int slice = ((V - 1) / (ranks * warps) / VEC + 1) * VEC;
    const int smem_bytes = warps * STAGES * VECTORS * static_cast<int>(sizeof(uint4));
    // Without this attribute a launch gets at most 48 KB of dynamic shared memory.
    cudaFuncSetAttribute(ce_cluster_ahead_bf16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
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
    cudaOccupancyMaxActiveClusters(&clusters, ce_cluster_ahead_bf16_kernel, &config);
    config.gridDim = std::min(clusters, rows) * ranks;
    cudaLaunchKernelEx(&config, ce_cluster_ahead_bf16_kernel, x, target, g, loss, rows, V, slice);
}
