// ce_online_bf16: lse[row] = log(sum of exp(x[row, :])), loss[row] = lse[row] - x[row, target[row]], in one pass
//
// Shapes     x: [rows, V] bf16, row-major, contiguous, 16-byte aligned base, target: [rows] i64 in 0..V-1, loss, lse:
//            [rows] f32, any rows, V >= 1
// Technique  a thread keeps the maximum of its logits and the sum relative to it, rescaled once per batch; few rows are
//            split over blocks, and the last block of a row merges their pairs
// New        over ce_forward_bf16: every logit is read once, by a grid that fills the card for a single row, too
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cuda_bf16.h>

constexpr int THREADS = 128;
constexpr int VEC = 8;    // logits in one access of 16 bytes
constexpr int LOADS = 2;  // per thread, in flight at once
constexpr int STEP = LOADS * THREADS;
constexpr int MAX_PARTS = 1024;  // of all rows together, if rows are split: one wave on 132 SMs
constexpr int MIN_PART = STEP;   // vectors; fewer do not justify a block
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");
static_assert(THREADS >= 2 * (VEC - 1), "one thread for each logit before and after the vectors");

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

// The threads' partial results merged, in every thread. All threads must call it together, and once in a kernel.
__device__ __forceinline__ Partial block_reduce(Partial value, Partial* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    value = warp_reduce(value);
    if (lane_id == 0) partial_smem[warp_id] = value;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    value = warp_reduce(lane_id < WARPS ? partial_smem[lane_id] : nothing());
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

// global -> registers: vectors v, v + THREADS, ... of a row's vectors, LOADS in all; logits of -inf past the last.
__device__ __forceinline__ void load_vectors(uint4 (&x_rmem)[LOADS], const uint4* x_vectors, int v, int vectors) {
    constexpr unsigned NOTHING = 0xff80ff80;  // two bf16 of -inf
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        x_rmem[i] = make_uint4(NOTHING, NOTHING, NOTHING, NOTHING);
        if (v + i * THREADS < vectors) x_rmem[i] = x_vectors[v + i * THREADS];
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

// Merges a batch into the pair of the logits before it.
__device__ __forceinline__ void add_batch(Partial& mine, const uint4 (&x_rmem)[LOADS]) {
    // TODO(1): Rescale the sum at most once for all LOADS * VEC logits, and take one exponential for each. Some of them
    //   may be -inf, or all. (~10 lines)
    // END TODO(1)
}

// What the parts of split rows found, and how many parts of each row are stored. Concurrent launches would share both.
__device__ Partial part_pairs[MAX_PARTS];
__device__ unsigned finished_parts[MAX_PARTS];  // 0 before and after every launch

// Each row belongs to parts neighbouring blocks. Each of them takes part_vectors of the row's vectors.
__global__ void __launch_bounds__(THREADS) ce_online_bf16_kernel(
    const __nv_bfloat16* __restrict__ x, const int64_t* __restrict__ target, float* __restrict__ loss,
    float* __restrict__ lse, int V, int parts, int part_vectors) {
    __shared__ Partial partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int row = blockIdx.x / parts;
    const int part = blockIdx.x % parts;
    const int64_t first = static_cast<int64_t>(row) * V;  // of x: the row's first logit
    const __nv_bfloat16* x_row = x + first;
    // The one logit that is gathered, asked for before the row.
    const float x_target = tid == 0 ? __bfloat162float(x_row[target[row]]) : 0.0f;
    const int head = min(V, static_cast<int>((VEC - first % VEC) % VEC));  // logits before the first 16-byte boundary
    const int vectors = (V - head) / VEC;                                  // from there on
    const uint4* x_vectors = reinterpret_cast<const uint4*>(x_row + head);
    Partial mine = nothing();
    // The first part also has the logits before and after the vectors, at most one per thread.
    const int col = tid < head ? tid : tid + vectors * VEC;
    if (part == 0 && col < V) mine = merge(mine, {__bfloat162float(x_row[col]), 1.0f});
    const int end = min(vectors, (part + 1) * part_vectors);
    for (int v = part * part_vectors + tid; v < end; v += STEP) {
        uint4 x_rmem[LOADS];
        load_vectors(x_rmem, x_vectors, v, end);
        add_batch(mine, x_rmem);
    }
    Partial all = block_reduce(mine, partial_smem);
    // The first warp finishes the row. No barrier follows.
    if (tid >= WARP_SIZE) return;
    if (parts > 1) {
        bool is_last = false;
        // TODO(2): Let one lane store the part's pair, and find out whether all other parts of the row have stored
        //   theirs. A lane that reads a pair below must see it. Every launch must find the counters at 0. (~6 lines)
        // END TODO(2)
        if (!__shfl_sync(FULL_MASK, is_last, 0)) return;
        // A shuffle orders no accesses to memory: the other lanes read after lane 0's fence.
        __syncwarp();
        // TODO(3): The warp of the last part merges the pairs of all parts of the row. (~4 lines)
        // END TODO(3)
    }
    if (tid == 0) {
        lse[row] = all.max + logf(all.sum);
        loss[row] = logf(all.sum) + (all.max - x_target);
    }
}

KATA_EXPORT void ce_online_bf16(
    const __nv_bfloat16* x, const int64_t* target, float* loss, float* lse, int rows, int V, cudaStream_t stream) {
    int parts = 1;  // blocks of each row
    // TODO(4): Split rows that are too few for the card: into as many parts as MAX_PARTS allows for all rows together,
    //   but none of fewer than MIN_PART vectors. (~2 lines)
    // END TODO(4)
    const int part_vectors = V / VEC / parts + 1;  // a row may have a vector less, and its last part fewer
    ce_online_bf16_kernel<<<rows * parts, THREADS, 0, stream>>>(x, target, loss, lse, V, parts, part_vectors);
}
