// decode_attention_kv_cache_f16: one query a head against a cache of keys and values, O = softmax(K q / sqrt(D)) V
//
// Shapes     q, O: [B, H, D] f16, K, V: [B, H, N, D] f16, lengths: [B] i32, contiguous, 16-byte aligned bases, D one of
//            64, 128, any B, H >= 0, N >= 1. Of sequence b the first lengths[b] keys are there, 0 to N of them; what the
//            cache holds behind these may be anything. Where there are none, O is 0
// Technique  a block takes a chunk of one head's keys, by online softmax on CUDA cores; a second kernel joins the chunks
// New        over flash_attn_online_f16: one query has no tile to share keys with, so the keys are shared out to blocks
// Bound      memory bandwidth: every key and value is read once, for two operations an element
#include "kata.cuh"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;       // of the first pass
constexpr int JOIN_THREADS = 512;  // of the second: a head may have many chunks and no other blocks to hide behind
constexpr int MIN_BLOCKS = 4;      // per SM: a thread may have 64 registers
constexpr int VEC = 8;             // halves in one access of 16 bytes
constexpr int UNROLL = 4;          // keys, and as many values, that a lane has on their way at once
constexpr int MIN_CHUNK = 128;     // keys; fewer are not worth a block
constexpr int MAX_CHUNKS = 2112;   // of all heads together, where keys are shared out: four waves on 132 SMs
constexpr int MAX_D = 128;

// As many lanes hold a row of D between them, VEC columns each: such a group works on keys of its own.
template <int D>
constexpr int LANES = D / VEC;
template <int D, int BLOCK = THREADS>
constexpr int GROUPS = BLOCK / LANES<D>;

// Lower than any logit, and finite: the difference of two maxima must be a number, which -inf - -inf is not.
constexpr float NO_KEYS = -FLT_MAX;

// The maximum of some keys' logits, the sum of their weights 2^(logit - maximum), and this lane's columns of the sum of
// their weighted values. Of no keys the maximum is NO_KEYS and all else 0.
struct Part {
    float max;
    float sum;
    float o[VEC];
};

// What chunks come to, [B * H, chunks]. Launches that run at the same time would share them.
__device__ float2 chunk_stats[MAX_CHUNKS];  // maximum and sum
__device__ alignas(16) float chunk_O[MAX_CHUNKS * MAX_D];

// 2^x, within 2 in the last place; 0 below 2^-126 (PTX ISA, "ex2").
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

// part becomes what it would be had it seen other's keys too. Both are of the same columns.
__device__ inline void join(Part& part, const Part& other) {
    // TODO(1): Bring both to the larger maximum, then add. Either may have seen no keys. (~5 lines)
    // END TODO(1)
}

// The parts of all groups of a block as one, in each of the first group's lanes. All threads must call it together.
template <int D, int BLOCK>
__device__ inline void join_groups(Part& part) {
    __shared__ Part part_smem[BLOCK];
    const int tid = threadIdx.x;
#pragma unroll
    for (int threads = BLOCK / 2; threads >= LANES<D>; threads /= 2) {
        part_smem[tid] = part;
        // The lower half of the groups reads what the upper half wrote.
        __syncthreads();
        if (tid < threads) join(part, part_smem[tid + threads]);
        // What was read may be overwritten.
        __syncthreads();
    }
}

// O = the weighted mean, which is 0 where there are no keys.
__device__ inline void store_O(half* O, const Part& part) {
    const float inverse = part.sum > 0.0f ? 1.0f / part.sum : 0.0f;
    alignas(uint4) half2 pairs[VEC / 2];
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i)
        pairs[i] = __floats2half2_rn(part.o[2 * i] * inverse, part.o[2 * i + 1] * inverse);
    *reinterpret_cast<uint4*>(O) = *reinterpret_cast<const uint4*>(pairs);
}

// First pass: the keys of one chunk. scale is log2(e) / sqrt(D), as exp(x) is 2^(x log2(e)).
template <int D>
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS) decode_attention_kv_cache_f16_kernel(
    const half* __restrict__ q,       // [B, H, D]
    const half* __restrict__ K,       // [B, H, N, D]
    const half* __restrict__ V,       // [B, H, N, D]
    const int* __restrict__ lengths,  // [B]
    half* __restrict__ O,             // [B, H, D]
    int H, int N, int chunks, int chunk_keys, float scale) {
    // Blocks go along the chunks of a head, then along the heads.
    const int head = blockIdx.x / chunks;
    const int begin = blockIdx.x % chunks * chunk_keys;
    const int end = min(lengths[head / H], begin + chunk_keys);
    const int group = threadIdx.x / LANES<D>;
    const int col = threadIdx.x % LANES<D> * VEC;
    const half* const K_lane = K + int64_t{head} * N * D + col;
    const half* const V_lane = V + int64_t{head} * N * D + col;
    Part part = {NO_KEYS};
    // Nobody reads what a chunk without keys would leave; where it is the only one, its head must get its O.
    if (begin >= end && chunks > 1) return;
    float q_rmem[VEC];
    unpack(q_rmem, *reinterpret_cast<const uint4*>(q + int64_t{head} * D + col));
#pragma unroll
    for (int i = 0; i < VEC; ++i) q_rmem[i] *= scale;
    // All groups take as many steps, since a warp's lanes shuffle together.
    for (int step = begin; step < end; step += UNROLL * GROUPS<D>) {
        uint4 K_rmem[UNROLL], V_rmem[UNROLL];
        float logit[UNROLL];
        // TODO(2): The logits of this group's UNROLL keys, those at step + i * GROUPS + group. All loads, of K and of V,
        //   come before the first use. A key that is not there gets -inf, and no load may go to end or past it: what
        //   lies there may be nan, and 0 * nan is nan. (~14 lines)
        // END TODO(2)
        // TODO(3): Online softmax: the new maximum, what was summed before brought to it, once for all UNROLL keys, and
        //   the weights and weighted values of these added. (~14 lines)
        // END TODO(3)
    }
    join_groups<D, THREADS>(part);
    if (group > 0) return;
    if (chunks == 1) return store_O(O + int64_t{head} * D + col, part);
    // TODO(4): Leave this chunk's part for the second pass. (~5 lines)
    // END TODO(4)
}

// Second pass: the chunks of one head.
template <int D>
__global__ void __launch_bounds__(JOIN_THREADS) decode_attention_kv_cache_f16_join_kernel(
    const int* __restrict__ lengths,  // [B]
    half* __restrict__ O,             // [B, H, D]
    int H, int chunks, int chunk_keys) {
    const int head = blockIdx.x;
    const int group = threadIdx.x / LANES<D>;
    const int col = threadIdx.x % LANES<D> * VEC;
    Part part = {NO_KEYS};
    // TODO(5): Join the parts of all chunks of this head that have keys, and of no others: theirs were never written, or
    //   are of a launch before. Each group takes every GROUPS-th. (~9 lines)
    // END TODO(5)
    join_groups<D, JOIN_THREADS>(part);
    if (group == 0) store_O(O + int64_t{head} * D + col, part);
}

template <int D>
void launch(
    const half* q, const half* K, const half* V, const int* lengths, half* O, int heads, int H, int N,
    cudaStream_t stream) {
    int chunks = 0;
    // TODO(6): As many chunks of a head as MAX_CHUNKS allows for all heads, none shorter than MIN_CHUNK keys. The host
    //   does not know the lengths: chunks are cut for N keys, and those behind a length stay empty. (~1 line)
    // END TODO(6)
    const int chunk_keys = (N - 1) / chunks + 1;
    const float scale = static_cast<float>(M_LOG2E / std::sqrt(double{D}));
    decode_attention_kv_cache_f16_kernel<D>
        <<<heads * chunks, THREADS, 0, stream>>>(q, K, V, lengths, O, H, N, chunks, chunk_keys, scale);
    // The stream keeps the order: the second kernel starts when the first has ended.
    if (chunks > 1)
        decode_attention_kv_cache_f16_join_kernel<D>
            <<<heads, JOIN_THREADS, 0, stream>>>(lengths, O, H, chunks, chunk_keys);
}

KATA_EXPORT void decode_attention_kv_cache_f16(
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
