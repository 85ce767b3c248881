// decode_attention_kv_cache_last_block_f16: one query per head against a KV cache, O = softmax(K q / sqrt(D)) V
//
// Shapes     q, O: [B, H, D] f16, K, V: [B, H, N, D] f16, lengths: [B] i32, contiguous, 16-byte aligned bases, D one of
//            64, 128, any B >= 0, H, N >= 1. Sequence b has lengths[b] keys, 0 to N; the cache may hold anything past
//            them. Without keys O is 0
// Technique  each block processes one chunk of a head's keys by online softmax on CUDA cores; a head's last block
//            merges them
// New        over decode_attention_kv_cache_f16: no second launch, which would have to wait for the slowest block of
//            the first
// Bound      memory bandwidth: every key and value is read once, for two operations per element
#include "kata.cuh"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int MIN_BLOCKS = 4;     // per SM: a thread may have 64 registers
constexpr int VEC = 8;            // halves in one access of 16 bytes
constexpr int UNROLL = 4;         // keys, and as many values, that a lane has in flight at once
constexpr int MIN_CHUNK = 128;    // keys; fewer do not justify a block
constexpr int MAX_CHUNKS = 2112;  // of all heads together, if keys are split: four waves on 132 SMs
constexpr int MAX_D = 128;

// The lanes that together hold a row of D, VEC columns each. Such a group works on keys of its own.
template <int D>
constexpr int LANES = D / VEC;
template <int D>
constexpr int GROUPS = THREADS / LANES<D>;

// Lower than any logit, and finite: the difference of two maxima must be a number, but -inf - -inf is nan.
constexpr float NO_KEYS = -FLT_MAX;

// The maximum of some keys' logits, the sum of their weights 2^(logit - maximum), and this lane's columns of the sum of
// their weighted values. Without keys the maximum is NO_KEYS and all else is 0.
struct Part {
    float max;
    float sum;
    float o[VEC];
};

// The parts of the chunks, [B * H, chunks], and the number of finished chunks per head, [B * H]. Concurrent launches
// would share them.
__device__ float2 chunk_stats[MAX_CHUNKS];  // maximum and sum
alignas(16) __device__ float chunk_O[MAX_CHUNKS * MAX_D];
__device__ unsigned finished_chunks[MAX_CHUNKS];  // 0 before and after every launch

// 2^x, accurate to 2 ulp; 0 below 2^-126 (PTX ISA, "ex2").
__device__ inline float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ inline void unpack(float (&floats)[VEC], uint4 halves) {
    const half2* const pairs = reinterpret_cast<const half2*>(&halves);
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i) {
        const float2 pair = __half22float2(pairs[i]);
        floats[2 * i] = pair.x;
        floats[2 * i + 1] = pair.y;
    }
}

// The sum over a group's lanes, in each of them. All 32 lanes of a warp must call it together.
template <int D>
__device__ inline float group_sum(float sum) {
#pragma unroll
    for (int offset = LANES<D> / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
    return sum;
}

// Merges other into part, as if part had seen other's keys too. Both hold the same columns.
__device__ inline void join(Part& part, const Part& other) {
    // TODO(1): Rescale both to the larger maximum, then add. Either may have seen no keys. (~5 lines)
    const float max = fmaxf(part.max, other.max);
    const float mine = exp2_approx(part.max - max);
    const float others = exp2_approx(other.max - max);
    part.sum = mine * part.sum + others * other.sum;
#pragma unroll
    for (int i = 0; i < VEC; ++i) part.o[i] = mine * part.o[i] + others * other.o[i];
    part.max = max;
    // END TODO(1)
}

// Merges the parts of all groups, in each of the first group's lanes. All threads must call it together.
template <int D>
__device__ inline void join_groups(Part& part) {
    __shared__ Part part_smem[THREADS];
    const int tid = threadIdx.x;
#pragma unroll
    for (int threads = THREADS / 2; threads >= LANES<D>; threads /= 2) {
        part_smem[tid] = part;
        // The lower half of the groups reads what the upper half wrote.
        __syncthreads();
        if (tid < threads) join(part, part_smem[tid + threads]);
        // The next iteration overwrites what was read here.
        __syncthreads();
    }
}

// O = the weighted mean, or 0 without keys.
__device__ inline void store_O(half* O, const Part& part) {
    const float inverse = part.sum > 0.0f ? 1.0f / part.sum : 0.0f;
    alignas(uint4) half2 pairs[VEC / 2];
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i)
        pairs[i] = __floats2half2_rn(part.o[2 * i] * inverse, part.o[2 * i + 1] * inverse);
    *reinterpret_cast<uint4*>(O) = *reinterpret_cast<const uint4*>(pairs);
}

// The keys of one chunk. A head's last block also merges all its chunks. scale is log2(e) / sqrt(D), because exp(x) is
// 2^(x log2(e)).
template <int D>
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS) decode_attention_kv_cache_last_block_f16_kernel(
    const half* __restrict__ q,       // [B, H, D]
    const half* __restrict__ K,       // [B, H, N, D]
    const half* __restrict__ V,       // [B, H, N, D]
    const int* __restrict__ lengths,  // [B]
    half* __restrict__ O,             // [B, H, D]
    int H, int N, int chunks, int chunk_keys, float scale) {
    __shared__ bool is_last_smem;
    // Consecutive blocks go along the chunks of a head, then along the heads.
    const int head = blockIdx.x / chunks;
    const int begin = blockIdx.x % chunks * chunk_keys;
    const int end = min(lengths[head / H], begin + chunk_keys);
    const int group = threadIdx.x / LANES<D>;
    const int col = threadIdx.x % LANES<D> * VEC;
    const half* const K_lane = K + int64_t{head} * N * D + col;
    const half* const V_lane = V + int64_t{head} * N * D + col;
    Part part = {NO_KEYS};
    // Chunks past the length do not count, except the first: its head needs an O.
    const int counted = max(1, (lengths[head / H] + chunk_keys - 1) / chunk_keys);
    if (begin >= end && begin > 0) return;
    float q_rmem[VEC];
    unpack(q_rmem, *reinterpret_cast<const uint4*>(q + int64_t{head} * D + col));
#pragma unroll
    for (int i = 0; i < VEC; ++i) q_rmem[i] *= scale;
    // All groups take the same number of steps, because a warp's lanes shuffle together.
    for (int step = begin; step < end; step += UNROLL * GROUPS<D>) {
        uint4 K_rmem[UNROLL], V_rmem[UNROLL];
        float logit[UNROLL];
        // TODO(2): Compute the logits of this group's UNROLL keys, at step + i * GROUPS + group. Load all K and V
        //   before the first use. A key at or past end gets -inf. Load nothing from there: it may hold nan, and 0 * nan
        //   is nan. (~14 lines)
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            // A key past the end reads the last key instead, with weight 0.
            const int64_t key = min(step + i * GROUPS<D> + group, end - 1);
            K_rmem[i] = *reinterpret_cast<const uint4*>(K_lane + key * D);
            V_rmem[i] = *reinterpret_cast<const uint4*>(V_lane + key * D);
        }
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            float k[VEC];
            unpack(k, K_rmem[i]);
            float dot = 0.0f;
#pragma unroll
            for (int j = 0; j < VEC; ++j) dot += q_rmem[j] * k[j];
            dot = group_sum<D>(dot);
            logit[i] = step + i * GROUPS<D> + group < end ? dot : -INFINITY;
        }
        // END TODO(2)
        // TODO(3): Online softmax: find the new maximum, rescale the earlier sums once for all UNROLL keys, and add
        //   their weights and weighted values. (~14 lines)
        float max = part.max;
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) max = fmaxf(max, logit[i]);
        const float shrink = exp2_approx(part.max - max);
        part.max = max;
        part.sum *= shrink;
#pragma unroll
        for (int j = 0; j < VEC; ++j) part.o[j] *= shrink;
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            const float weight = exp2_approx(logit[i] - max);
            part.sum += weight;
            float v[VEC];
            unpack(v, V_rmem[i]);
#pragma unroll
            for (int j = 0; j < VEC; ++j) part.o[j] += weight * v[j];
        }
        // END TODO(3)
    }
    join_groups<D>(part);
    if (counted > 1) {
        if (group == 0) {
            // TODO(4): Store this chunk's part for the block that merges them. (~4 lines)
            if (col == 0) chunk_stats[blockIdx.x] = {part.max, part.sum};
            float4* const O_chunk = reinterpret_cast<float4*>(chunk_O + int64_t{blockIdx.x} * D + col);
            O_chunk[0] = make_float4(part.o[0], part.o[1], part.o[2], part.o[3]);
            O_chunk[1] = make_float4(part.o[4], part.o[5], part.o[6], part.o[7]);
            // END TODO(4)
        }
        // TODO(5): Find out whether all other counted chunks of this head have stored their parts. The block that reads
        //   the counter's last value must see all parts in memory. Every launch must find the counter at 0. (~8 lines)
        __threadfence();  // this thread's columns must be visible before the chunk is counted
        // All threads have stored theirs.
        __syncthreads();
        // Counts to counted - 1 and wraps to 0, ready for the next launch.
        if (threadIdx.x == 0) is_last_smem = atomicInc(&finished_chunks[head], counted - 1) == counted - 1;
        __syncthreads();
        if (!is_last_smem) return;
        __threadfence();  // no part may be read before all are counted
        // END TODO(5)
        // TODO(6): Merge the parts of the counted chunks, and only these. The others hold parts of an earlier launch.
        //   Each group takes every GROUPS-th. (~9 lines)
        part = {NO_KEYS};
#pragma unroll 4
        for (int chunk = group; chunk < counted; chunk += GROUPS<D>) {
            const float2 stats = chunk_stats[head * chunks + chunk];
            const float4* const O_chunk = reinterpret_cast<const float4*>(chunk_O + (head * chunks + chunk) * D + col);
            const float4 low = O_chunk[0];
            const float4 high = O_chunk[1];
            join(part, {stats.x, stats.y, {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}});
        }
        // END TODO(6)
        join_groups<D>(part);
    }
    if (group == 0) store_O(O + int64_t{head} * D + col, part);
}

template <int D>
void launch(
    const half* q, const half* K, const half* V, const int* lengths, half* O, int heads, int H, int N,
    cudaStream_t stream) {
    // The host does not know the lengths. It cuts for N keys, and chunks past a length stay empty.
    const int chunks = std::max(1, std::min(MAX_CHUNKS / heads, N / MIN_CHUNK));
    const int chunk_keys = (N - 1) / chunks + 1;
    const float scale = static_cast<float>(M_LOG2E / std::sqrt(double{D}));
    decode_attention_kv_cache_last_block_f16_kernel<D>
        <<<heads * chunks, THREADS, 0, stream>>>(q, K, V, lengths, O, H, N, chunks, chunk_keys, scale);
}

KATA_EXPORT void decode_attention_kv_cache_last_block_f16(
    const half* q, const half* K, const half* V, const int* lengths, half* O, int B, int H, int N, int D,
    cudaStream_t stream) {
    if (B * H == 0) return;  // a grid of no blocks is an invalid launch
    switch (D) {
        case 64:
            return launch<64>(q, K, V, lengths, O, B * H, H, N, stream);
        case 128:
            return launch<128>(q, K, V, lengths, O, B * H, H, N, stream);
    }
}
