// ce_cluster_bf16: loss[row] = lse - x[row, target[row]], lse = log(sum of exp(x[row, :])), and x[row, :] becomes the
//                  gradient (exp(x[row, :] - lse) - [column = target[row]]) * g[row]
//
// Shapes     x: [rows, V] bf16, row-major, contiguous, 16-byte aligned base, updated in place, target: [rows] i64 in
//            0..V-1, g, loss: [rows] f32, any rows >= 1, V in 8..131072 and a multiple of 8
// Technique  resident clusters take row after row; a row stays in the registers of a cluster's threads from its only
//            read to its only write, and a block's pair of maximum and sum is all that another block gets
// New        over ce_smooth_ignore_bf16: the registers of several blocks hold the row, so none of it is read again;
//            over rms_norm_cluster_f16: the exchange is of pairs, and one thread of the cluster has the target's logit
// Bound      memory bandwidth; every call gives the same bits
#include "kata.cuh"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cooperative_groups.h>
#include <cstdint>
#include <cuda_bf16.h>

namespace cg = cooperative_groups;

constexpr int MAX_RANKS = 8;  // blocks of the largest cluster: every card with clusters has room for it
constexpr int THREADS = 512;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int VEC = 8;             // logits per access: uint4 is 16 bytes
constexpr int PACKS = 4;           // accesses of a thread per row
constexpr int HELD = PACKS * VEC;  // logits of the row that a thread keeps in registers
constexpr int PLACES = 2;          // for a block's pair: of this row, and of the row before
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");
static_assert(MAX_RANKS <= WARP_SIZE, "one warp combines the pairs of all blocks");

// The maximum of some logits of a row, and their sum of exp(logit - maximum).
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
    // A slow warp may still read the partial results of the previous call.
    __syncthreads();
    if (lane_id == 0) partial_smem[warp_id] = value;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    value = warp_reduce(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : nothing());
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

// global -> registers: HELD of the first cols logits per thread, -inf past them
__device__ __forceinline__ void load(uint4 (&to_rmem)[PACKS], const __nv_bfloat16* from, int cols) {
    constexpr unsigned NOTHING = 0xff80ff80;  // two bf16 of -inf
#pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const int col = (i * blockDim.x + threadIdx.x) * VEC;
        to_rmem[i] = make_uint4(NOTHING, NOTHING, NOTHING, NOTHING);
        if (col < cols) to_rmem[i] = *reinterpret_cast<const uint4*>(from + col);
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

// Two blocks per SM: at most 64 registers per thread, and one block loads while the other computes.
// Block rank of a cluster has the columns from rank * share on: share of them, fewer at the end of the row, or none.
__global__ void __launch_bounds__(THREADS, 2) ce_cluster_bf16_kernel(
    __nv_bfloat16* x, const int64_t* __restrict__ target, const float* __restrict__ g, float* __restrict__ loss,
    int rows, int V, int share) {
    __shared__ Partial partial_smem[WARPS];
    __shared__ Partial pair_smem[PLACES];  // of this block's columns, for the other blocks
    const cg::cluster_group cluster = cg::this_cluster();
    const int ranks = cluster.num_blocks();
    const int tid = threadIdx.x;
    const int lane_id = tid % WARP_SIZE;
    const int off = cluster.block_rank() * share;
    const int mine = min(V - off, share);
    const int first = blockIdx.x / ranks;
    const int step = gridDim.x / ranks;
    uint4 next_rmem[PACKS];
    load(next_rmem, x + first * int64_t{V} + off, mine);
    int place = 0;
    for (int64_t row = first; row < rows; row += step) {
        uint4 x_rmem[PACKS];
#pragma unroll
        for (int i = 0; i < PACKS; ++i) x_rmem[i] = next_rmem[i];
        // The next row is asked for now: its loads take as long as this row's sums.
        if (row + step < rows) load(next_rmem, x + (row + step) * V + off, mine);
        const int hit = static_cast<int>(target[row]) - off;  // the target among this block's columns, if it is there
        const float row_g = g[row];
        Partial all = nothing();
        // TODO(1): The pair of this thread's logits. Some of them may be -inf, or all. (~9 lines)
        all.max = fmaxf(all.max, max_of(x_rmem));
#pragma unroll
        for (const uint4& vector : x_rmem) {
            float logits[VEC];
            unpack(logits, vector);
#pragma unroll
            for (const float logit : logits) all.sum += __expf(logit - all.max);
        }
        // END TODO(1)
        all = block_reduce(all, partial_smem);
        // TODO(2): The pair of the row, in every thread of the cluster, with one barrier of the cluster per row. The
        //   cluster has ranks blocks. Another block may still read this block's pair of the row before. (~5 lines)
        // It cannot still read that of two rows before: it has arrived at the barrier of the row in between.
        if (tid == 0) pair_smem[place] = all;
        // Every block reads what all blocks of the cluster wrote.
        cluster.sync();
        all = warp_reduce(lane_id < ranks ? *cluster.map_shared_rank(&pair_smem[place], lane_id) : nothing());
        place = 1 - place;
        // END TODO(2)
        const float scale = row_g / all.sum;
        __nv_bfloat16* x_share = x + row * V + off;
#pragma unroll
        for (int i = 0; i < PACKS; ++i) {
            const int col = (i * blockDim.x + tid) * VEC;
            if (col < mine) {
                float logits[VEC];
                unpack(logits, x_rmem[i]);
                // TODO(3): Turn the logits into their gradients, and store the row's loss. Blocks write their parts of
                //   the row at any time from here on, so the target's logit is only left in a register. (~8 lines)
                const int j_hit = hit - col;
                float x_target = 0.0f;
#pragma unroll
                for (int j = 0; j < VEC; ++j) {
                    if (j == j_hit) x_target = logits[j];
                    logits[j] = __expf(logits[j] - all.max) * scale - (j == j_hit ? row_g : 0.0f);
                }
                if (j_hit >= 0 && j_hit < VEC) loss[row] = logf(all.sum) + (all.max - x_target);
                // END TODO(3)
                __stcs(reinterpret_cast<uint4*>(x_share + col), pack(logits));
            }
        }
    }
    // Other blocks may still read this block's last pair, which ends with the block.
    cluster.sync();
}

KATA_EXPORT void ce_cluster_bf16(
    __nv_bfloat16* x, const int64_t* target, const float* g, float* loss, int rows, int V, cudaStream_t stream) {
    int ranks = 1;
    // TODO(4): Blocks per row: 1, 2, 4 or MAX_RANKS, as few as hold the row. (~1 line)
    while (ranks < MAX_RANKS && ranks * THREADS * HELD < V) ranks *= 2;
    // END TODO(4)
    // Columns per block: every share starts at a multiple of 16 bytes.
    const int share = ((V - 1) / ranks / VEC + 1) * VEC;
    // Just enough warps to hold a share.
    const int warps = (share - 1) / (WARP_SIZE * HELD) + 1;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = ranks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = ranks;
    config.blockDim = warps * WARP_SIZE;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    // As many clusters as fit on the device, but at most one per row.
    int clusters = 0;
    cudaOccupancyMaxActiveClusters(&clusters, ce_cluster_bf16_kernel, &config);
    config.gridDim = std::min(clusters, rows) * ranks;
    cudaLaunchKernelEx(&config, ce_cluster_bf16_kernel, x, target, g, loss, rows, V, share);
}
