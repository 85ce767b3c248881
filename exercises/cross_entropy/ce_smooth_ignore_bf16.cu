// ce_smooth_ignore_bf16: the mean loss with label smoothing over the rows that count, and its gradient in place of x
//
// Shapes     x: [rows, V] bf16, row-major, contiguous, 16-byte aligned base, target: [rows] i64 in 0..V-1, or -100 for
//            a row that does not count, mean_loss: [1] f32, smoothing: 0 to 1, any rows, V >= 1
// Technique  a launch counts the rows that count; then one block per row reads it once, holds in shared memory what
//            fits, and writes the gradient; the last block adds up the losses
// New        over ce_backward_bf16: loss and gradient in one kernel, scaled by a number that needs all rows
// Bound      memory bandwidth, and the instructions of two passes; losses add up in a fixed order: the same bits each
//            time
#include "kata.cuh"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cuda_bf16.h>

constexpr int THREADS = 512;
constexpr int BLOCKS_PER_SM = 2;  // that share its shared memory, if rows are long
constexpr int VEC = 8;            // logits in one access of 16 bytes
constexpr int LOADS = 2;          // per thread, in flight at once
constexpr int STEP = LOADS * THREADS;
constexpr int64_t IGNORED = -100;  // the target of a row that does not count
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");
static_assert(THREADS >= 2 * (VEC - 1), "one thread for each logit before and after the vectors");

// The maximum of some logits of a row, their sum of exp(logit - maximum), and the sum of the logits themselves.
struct Part {
    float max;
    float sum;
    float total;
};

// The part of no logits. The lowest float stands in for -inf, because -inf - -inf is nan, not 0.
__device__ __forceinline__ Part empty() {
    return {-FLT_MAX, 0.0f, 0.0f};
}

// The part of the logits of both.
__device__ __forceinline__ Part join(Part a, Part b) {
    const float max = fmaxf(a.max, b.max);
    return {max, a.sum * __expf(a.max - max) + b.sum * __expf(b.max - max), a.total + b.total};
}

// The part of all lanes' logits, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ Part warp_reduce(Part part) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        part = join(
            part, {__shfl_xor_sync(FULL_MASK, part.max, offset), __shfl_xor_sync(FULL_MASK, part.sum, offset),
                   __shfl_xor_sync(FULL_MASK, part.total, offset)});
    return part;
}

// The part of all threads' logits, in every thread. All threads must call it together, and only once.
__device__ __forceinline__ Part block_reduce(Part part, Part* part_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    part = warp_reduce(part);
    if (lane_id == 0) part_smem[warp_id] = part;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    return warp_reduce(lane_id < WARPS ? part_smem[lane_id] : empty());
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

// global -> registers: vectors v, v + THREADS, ... of a row, LOADS in all; logits of -inf past the last. Those
// below once are read for the last time: the caches evict them first.
__device__ __forceinline__ void load_vectors(
    uint4 (&x_rmem)[LOADS], const uint4* x_vectors, int v, int vectors, int once) {
    constexpr unsigned NOTHING = 0xff80ff80;  // two bf16 of -inf
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        x_rmem[i] = make_uint4(NOTHING, NOTHING, NOTHING, NOTHING);
        if (v + i * THREADS < once)
            x_rmem[i] = __ldcs(x_vectors + v + i * THREADS);
        else if (v + i * THREADS < vectors)
            x_rmem[i] = x_vectors[v + i * THREADS];
    }
}

// The maximum of the logits of a batch, two per instruction. A nan is dropped here; it stays in the sum.
__device__ __forceinline__ float max_of(const uint4 (&x_rmem)[LOADS]) {
    __nv_bfloat162 most = __float2bfloat162_rn(-INFINITY);
#pragma unroll
    for (const uint4& vector : x_rmem) {
        const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&vector);
#pragma unroll
        for (int i = 0; i < VEC / 2; ++i) most = __hmax2(most, pairs[i]);
    }
    return fmaxf(__low2float(most), __high2float(most));
}

// registers -> shared: vectors v, v + THREADS, ... as far as there is room. Joins their logits to the part.
__device__ __forceinline__ void add_batch(
    Part& mine, const uint4 (&x_rmem)[LOADS], int v, int vectors, int held, uint4* row_smem) {
    // TODO(1): The sum is rescaled once for all LOADS * VEC logits. What is past the row must not enter the total.
    //   (~14 lines)
    // END TODO(1)
}

// What all logits of a row share.
struct Smoothed {
    float lse;
    float scale;    // 1 over the number of rows that count
    float uniform;  // what smoothing takes from every column, times scale
    float hit;      // what is left for the target's, times scale
    int target;     // column
};

// The gradient of the mean loss by the logits of a vector from column col on.
__device__ __forceinline__ uint4 gradient(const uint4& vector, int col, const Smoothed& row) {
    const int place = row.target - col;  // of the target in the vector
    float logits[VEC];
    unpack(logits, vector);
#pragma unroll
    for (float& logit : logits) logit = __expf(logit - row.lse) * row.scale - row.uniform;
    // One comparison for most vectors, in place of VEC.
    if (place >= 0 && place < VEC) {
#pragma unroll
        for (int i = 0; i < VEC; ++i) logits[i] -= i == place ? row.hit : 0.0f;
    }
    return pack(logits);
}

// What the blocks of a call share, in device memory.
struct Counts {
    int valid;          // rows that count
    unsigned finished;  // rows whose loss is stored
};

__global__ void __launch_bounds__(THREADS)
    count_valid_kernel(const int64_t* __restrict__ target, Counts* __restrict__ counts, int rows) {
    __shared__ int valid_smem;
    if (threadIdx.x == 0) valid_smem = 0;
    // No thread adds before it is cleared.
    __syncthreads();
    // TODO(2): Count the targets other than IGNORED in valid_smem. (~4 lines)
    // END TODO(2)
    // All warps have added.
    __syncthreads();
    if (threadIdx.x == 0) *counts = {valid_smem, 0};
}

// Shared memory has room for held of a row's vectors.
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) ce_smooth_ignore_bf16_kernel(
    __nv_bfloat16* x, const int64_t* __restrict__ target, float* __restrict__ mean_loss,
    float* losses,  // [rows]
    Counts* counts, int rows, int V, float smoothing, int held) {
    extern __shared__ uint4 row_smem[];  // [held]
    __shared__ Part part_smem[WARPS];
    __shared__ bool is_last_smem;
    const int tid = threadIdx.x;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * V;  // of x: the row's first logit
    __nv_bfloat16* x_row = x + first;
    const int head = min(V, static_cast<int>((VEC - first % VEC) % VEC));  // logits before the first 16-byte boundary
    const int vectors = (V - head) / VEC;                                  // from there on
    uint4* x_vectors = reinterpret_cast<uint4*>(x_row + head);
    // The logits before and after the vectors, at most one per thread.
    const int col = tid < head ? tid : tid + vectors * VEC;
    const int64_t label = target[blockIdx.x];
    // Vectors in shared memory are read once and must not evict others from L2, if there are others.
    const int once = held < vectors ? held : 0;
    float loss = 0.0f;
    if (label == IGNORED) {
        // TODO(3): The gradient of a row that does not count is 0. (~2 lines)
        // END TODO(3)
    } else {
        // The target's logit, asked for before any thread overwrites it.
        const float x_target = __bfloat162float(x_row[label]);
        const float x_edge = col < V ? __bfloat162float(x_row[col]) : 0.0f;
        Part mine = empty();
        if (col < V) mine = {x_edge, 1.0f, x_edge};
        for (int v = tid; v < vectors; v += STEP) {
            uint4 x_rmem[LOADS];
            load_vectors(x_rmem, x_vectors, v, vectors, once);
            add_batch(mine, x_rmem, v, vectors, held, row_smem);
        }
        const Part all = block_reduce(mine, part_smem);
        Smoothed row = {};
        // TODO(4): The row's loss, and what its gradient needs. (~5 lines)
        // END TODO(4)
        const float edge = __expf(x_edge - row.lse) * row.scale - row.uniform - (col == row.target ? row.hit : 0.0f);
        if (col < V) x_row[col] = __float2bfloat16(edge);
        // What shared memory does not hold is read again, the last step first: L2 still has what was read last.
        for (int begin = (vectors - 1) / STEP * STEP; held < vectors && begin + STEP > held; begin -= STEP) {
            uint4 x_rmem[LOADS];
            load_vectors(x_rmem, x_vectors, begin + tid, vectors, vectors);
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const int v = begin + tid + i * THREADS;
                if (v >= held && v < vectors) __stcs(x_vectors + v, gradient(x_rmem[i], head + v * VEC, row));
            }
        }
        // No barrier for row_smem: no thread reads what another wrote.
        for (int v = tid; v < min(held, vectors); v += THREADS)
            __stcs(x_vectors + v, gradient(row_smem[v], head + v * VEC, row));
    }
    // TODO(5): Store the row's loss, and find out whether all other rows have stored theirs. (~6 lines)
    // END TODO(5)
    // All threads read is_last_smem after thread 0 has written it, and part_smem is free again.
    __syncthreads();
    if (!is_last_smem) return;
    // TODO(6): The last block stores the mean of the losses of the rows that count, or 0 if none does. Two calls must
    //   give the same bits. (~4 lines)
    // END TODO(6)
}

KATA_EXPORT void ce_smooth_ignore_bf16(
    __nv_bfloat16* x, const int64_t* target, float* mean_loss, int rows, int V, float smoothing, cudaStream_t stream) {
    float* losses = nullptr;
    Counts* counts = nullptr;
    cudaMallocAsync(&losses, rows * sizeof(float), stream);
    cudaMallocAsync(&counts, sizeof(Counts), stream);
    int device = 0, sm_bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sm_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    // Each block has its share of an SM's shared memory, of which the row gets all but what is reserved for partials.
    constexpr int RESERVED = 1280;
    const int held = std::min(V / VEC, (sm_bytes / BLOCKS_PER_SM - RESERVED) / static_cast<int>(sizeof(uint4)));
    const int smem_bytes = held * static_cast<int>(sizeof(uint4));
    // Without this attribute a launch gets at most 48 KB of dynamic shared memory.
    cudaFuncSetAttribute(ce_smooth_ignore_bf16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    count_valid_kernel<<<1, THREADS, 0, stream>>>(target, counts, rows);
    ce_smooth_ignore_bf16_kernel<<<rows, THREADS, smem_bytes, stream>>>(
        x, target, mean_loss, losses, counts, rows, V, smoothing, held);
    cudaFreeAsync(counts, stream);
    cudaFreeAsync(losses, stream);
}
