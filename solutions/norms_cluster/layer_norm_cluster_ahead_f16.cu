// layer_norm_cluster_ahead_f16: y[row, col] = (x[row, col] - mean) / sqrt(variance + eps) * weight[col] + bias[col]
//
// Shapes     x, y: [rows, cols], weight, bias: [cols] f16, row-major, contiguous, 16-byte aligned bases, any rows >= 1,
//            cols in 8..131072 and a multiple of 8
// Technique  resident clusters take row after row; a warp has a slice of every row, which bulk copies load into a ring
//            of the warp's own, and the slice's weights and biases in registers; it sends the moments of its slice to
//            all blocks of the cluster
// New        over rms_norm_cluster_ahead_f16: a warp sends two numbers, and the second needs the first; all parts are
//            merged at once, not pair by pair as in layer_norm_cluster_f16
// Bound      memory bandwidth; every call gives the same bits
#include "kata.cuh"
#include "kata_tma.cuh"
#include <algorithm>
#include <cooperative_groups.h>
#include <cstdint>
#include <cuda_fp16.h>

namespace cg = cooperative_groups;

// From kata_tma.cuh:
using kata::smem_address, kata::mbarrier_init, kata::expect, kata::wait, kata::load_bytes;

constexpr int MAX_RANKS = 4;  // blocks of the largest cluster
constexpr int THREADS = 512;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int MAX_PARTS = MAX_RANKS * WARPS;  // slices of the longest row
constexpr int VEC = 8;                        // elements per access: uint4 is 16 bytes
constexpr int PACKS = 8;                      // accesses of a thread per row
constexpr int VECTORS = WARP_SIZE * PACKS;    // of the largest slice: 4 KB
constexpr int STAGES = 3;                     // slices in a warp's ring: one to write, one to sum, one in flight
constexpr int PLACES = 4;                     // rows whose moments may be in flight to a block, or not read yet
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(MAX_RANKS <= WARP_SIZE, "a lane sends to each block");
static_assert(MAX_PARTS % WARP_SIZE == 0, "a lane reads as many moments as every other");

// Some elements of a row: their mean, and the sum of their squared distances from it. How many they are follows from
// the slice.
struct Moments {
    float mean;
    float squares;
};

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// One access as floats.
__device__ __forceinline__ void widen(float* to_rmem, const uint4& pack) {
    const half* from = reinterpret_cast<const half*>(&pack);
#pragma unroll
    for (int j = 0; j < VEC; ++j) to_rmem[j] = __half2float(from[j]);
}

// The same of weights, which are in registers for all rows. volatile keeps the compiler from widening them once, before
// all rows: as floats they would take twice the registers.
__device__ __forceinline__ void widen_here(float* to_rmem, const uint4& pack) {
    const uint32_t words[VEC / 2] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i)
        asm volatile("{.reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
                     : "=f"(to_rmem[2 * i]), "=f"(to_rmem[2 * i + 1])
                     : "r"(words[i]));
}

// Floats as one access, each rounded once.
__device__ __forceinline__ uint4 narrow(const float* from_rmem) {
    uint4 pack;
    half* to = reinterpret_cast<half*>(&pack);
#pragma unroll
    for (int j = 0; j < VEC; ++j) to[j] = __float2half(from_rmem[j]);
    return pack;
}

// Where block rank of the cluster has what this block has at p (PTX ISA, mapa).
__device__ __forceinline__ uint32_t address_in(const void* p, int rank) {
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(smem_address(p)), "r"(rank));
    return address;
}

// Stores the moments in the shared memory of block rank, where this block has to_smem. The barrier there counts their 8
// bytes as they arrive (PTX ISA, st.async).
__device__ __forceinline__ void send(Moments* to_smem, Moments value, uint64_t* barrier, int rank) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                     address_in(to_smem, rank)),
                 "f"(value.mean), "f"(value.squares), "r"(address_in(barrier, rank))
                 : "memory");
}

// One block per SM, whose rings are 192 KB: a row that two SMs can hold needs a cluster of two, and such fit anywhere.
// Warp part of a cluster has the columns from part * slice on: slice of them, or fewer at the end of the row.
__global__ void __launch_bounds__(THREADS, 1) layer_norm_cluster_ahead_f16_kernel(
    const half* __restrict__ x, const half* __restrict__ weight, const half* __restrict__ bias, half* __restrict__ y,
    int rows, int cols, int slice, float eps) {
    alignas(128) extern __shared__ uint4 ring_smem[];  // [warps][STAGES][VECTORS]
    __shared__ Moments inbox_smem[PLACES][MAX_PARTS];  // the moments of the cluster's warps
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
    // The columns of a part of the row: 0 past the last part.
    const auto size_of = [&](int part) { return max(min(cols - part * slice, slice), 0); };
    const int mine = size_of(part);
    const int first = blockIdx.x / ranks;
    const int step = gridDim.x / ranks;
    const int count = (rows - 1 - first) / step + 1;  // rows of this cluster
    // Its k-th row is first + k * step. The warp's slice of it goes to stage k % STAGES of the warp's ring.
    const auto start_of = [&](int k) { return (first + int64_t{k} * step) * cols + off; };
    const auto stage_of = [&](int k) { return ring_smem + (warp_id * STAGES + k % STAGES) * VECTORS; };
    // One lane calls this: the copy of the slice starts, if there is such a row.
    const auto fetch = [&](int k) {
        if (k >= count) return;
        uint64_t* full = &full_barrier[warp_id][k % STAGES];
        const int bytes = mine * static_cast<int>(sizeof(half));
        expect(full, bytes);
        load_bytes(stage_of(k), x + start_of(k), bytes, full);
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
    // The weights and biases of this thread's columns stay for all rows.
    uint4 weight_rmem[PACKS], bias_rmem[PACKS];
#pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const int col = (i * WARP_SIZE + lane_id) * VEC;
        weight_rmem[i] = bias_rmem[i] = uint4{};
        if (col < mine) {
            weight_rmem[i] = *reinterpret_cast<const uint4*>(weight + off + col);
            bias_rmem[i] = *reinterpret_cast<const uint4*>(bias + off + col);
        }
    }
    const float per_col = 1.0f / cols;
    const float per_mine = 1.0f / mine;
    for (int k = 0; k <= count; ++k) {
        // The moments of row k are taken here, and row k - 1 is written.
        if (k < count) {
            wait(&full_barrier[warp_id][k % STAGES], k / STAGES % 2);
            const uint4* x_smem = stage_of(k);
            Moments moments = {};
            // TODO(1): The moments of the warp's slice, in every lane. (~20 lines)
            float sum = 0.0f;
#pragma unroll
            for (int i = 0; i < PACKS; ++i) {
                const int vector = i * WARP_SIZE + lane_id;
                if (vector * VEC < mine) {
                    float x_wide[VEC];
                    widen(x_wide, x_smem[vector]);
#pragma unroll
                    for (int j = 0; j < VEC; ++j) sum += x_wide[j];
                }
            }
            moments.mean = warp_reduce_sum(sum) * per_mine;
#pragma unroll
            for (int i = 0; i < PACKS; ++i) {
                const int vector = i * WARP_SIZE + lane_id;
                if (vector * VEC < mine) {
                    float x_wide[VEC];
                    widen(x_wide, x_smem[vector]);
#pragma unroll
                    for (int j = 0; j < VEC; ++j) {
                        const float distance = x_wide[j] - moments.mean;
                        moments.squares += distance * distance;
                    }
                }
            }
            moments.squares = warp_reduce_sum(moments.squares);
            // END TODO(1)
            // TODO(2): Send the moments to all blocks of the cluster, to place k % PLACES of their inboxes. Each block
            //   expects parts moments for the row. (~3 lines)
            const int place = k % PLACES;
            if (tid == 0) expect(&inbox_barrier[place], parts * static_cast<int>(sizeof(Moments)));
            if (lane_id < ranks) send(&inbox_smem[place][part], moments, &inbox_barrier[place], lane_id);
            // END TODO(2)
        }
        if (k > 0) {
            Moments row = {};
            // TODO(3): The moments of row k - 1, in every lane. Parts have size_of(part) columns. (~15 lines)
            wait(&inbox_barrier[(k - 1) % PLACES], (k - 1) / PLACES % 2);
            Moments moments[MAX_PARTS / WARP_SIZE];
#pragma unroll
            for (int i = 0; i < MAX_PARTS / WARP_SIZE; ++i) {
                const int from = i * WARP_SIZE + lane_id;
                moments[i] = from < parts ? inbox_smem[(k - 1) % PLACES][from] : Moments{};
                row.mean += moments[i].mean * size_of(from);
            }
            row.mean = warp_reduce_sum(row.mean) * per_col;
#pragma unroll
            for (int i = 0; i < MAX_PARTS / WARP_SIZE; ++i) {
                const float distance = moments[i].mean - row.mean;
                row.squares += moments[i].squares + distance * distance * size_of(i * WARP_SIZE + lane_id);
            }
            row.squares = warp_reduce_sum(row.squares);
            // END TODO(3)
            const float scale = rsqrtf(row.squares * per_col + eps);
            const uint4* x_smem = stage_of(k - 1);
            uint4* y_slice = reinterpret_cast<uint4*>(y + start_of(k - 1));
#pragma unroll
            for (int i = 0; i < PACKS; ++i) {
                const int vector = i * WARP_SIZE + lane_id;
                if (vector * VEC < mine) {
                    float x_wide[VEC], weight_wide[VEC], bias_wide[VEC];
                    widen(x_wide, x_smem[vector]);
                    widen_here(weight_wide, weight_rmem[i]);
                    widen_here(bias_wide, bias_rmem[i]);
#pragma unroll
                    for (int j = 0; j < VEC; ++j)
                        x_wide[j] = (x_wide[j] - row.mean) * scale * weight_wide[j] + bias_wide[j];
                    __stcs(y_slice + vector, narrow(x_wide));
                }
            }
            // TODO(4): Refill the stage as soon as no lane of the warp needs it any more. (~2 lines)
            __syncwarp();
            if (lane_id == 0) fetch(k - 1 + STAGES);
            // END TODO(4)
        }
    }
    // No last barrier: a block ends after it has received everything that other blocks send to it.
}

KATA_EXPORT void layer_norm_cluster_ahead_f16(
    const half* x, const half* weight, const half* bias, half* y, int rows, int cols, float eps, cudaStream_t stream) {
    // Blocks per row: 1, 2 or MAX_RANKS, as few as hold it.
    int ranks = 1;
    while (ranks < MAX_RANKS && ranks * WARPS * VECTORS * VEC < cols) ranks *= 2;
    // Just enough warps per block, and columns per warp: every slice starts at a multiple of 16 bytes. Every warp has
    // columns: rounding up adds at most 8 * MAX_PARTS to the row, and a slice that is not the only one is longer.
    const int warps = (cols - 1) / (ranks * VECTORS * VEC) + 1;
    const int slice = ((cols - 1) / (ranks * warps) / VEC + 1) * VEC;
    const int smem_bytes = warps * STAGES * VECTORS * static_cast<int>(sizeof(uint4));
    // Without this attribute a launch gets at most 48 KB of dynamic shared memory.
    cudaFuncSetAttribute(layer_norm_cluster_ahead_f16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
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
    cudaOccupancyMaxActiveClusters(&clusters, layer_norm_cluster_ahead_f16_kernel, &config);
    config.gridDim = std::min(clusters, rows) * ranks;
    cudaLaunchKernelEx(&config, layer_norm_cluster_ahead_f16_kernel, x, weight, bias, y, rows, cols, slice, eps);
}
