// w4a16_gemv_mma_f16: y[m] = sum of s[m, k / 128] * (u[m, k] - 8) * x[k] over k by mma.sync, weights in 4 bits
//
// Shapes     q: [M, K / 8] int, element i of a word in its bits 4 i to 4 i + 3, s: [M, K / 128], x: [K], y: [M] f16,
//            row-major, contiguous, 16-byte aligned bases, K = 128 * groups, any M, groups >= 0; groups = 0: y is 0
// Technique  one warp per ROWS rows; a load is 32 weights of one group, so four lanes have a group of a row. mma.sync
//            multiplies eight groups of two rows with the same eight groups of x: the sums are on a diagonal
// New        over w4a16_gemv_f16: Tensor Cores multiply and add. They take halves, so no weight becomes a float
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 128;
constexpr int WARP_SIZE = 32;
constexpr int ROWS = 8;                                 // per warp: each vector of x serves all of them
constexpr int BLOCK_ROWS = THREADS / WARP_SIZE * ROWS;  // per block
constexpr int VEC = 32;                                 // weights in one load of 16 bytes
constexpr int GROUP = 128;                              // weights that share a scale
constexpr int GROUP_LANES = GROUP / VEC;                // lanes that load a group of a row together
constexpr int MIN_BLOCKS = 5;                           // per SM: allows 96 registers per thread
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(GROUP_LANES == 4, "a row of fragment A belongs to four lanes");
static_assert(ROWS % 2 == 0, "fragment A has eight groups of two rows");

// Every lane gets the sum over the warp's 32 lanes. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// word & mask | bits, in one instruction: bit (4 a + 2 b + c) of 0xea is the result for the bits a, b, c of the three.
__device__ __forceinline__ uint32_t and_or(uint32_t word, uint32_t mask, uint32_t bits) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
    return result;
}

__device__ __forceinline__ half2 as_half2(uint32_t bits) {
    return reinterpret_cast<const half2&>(bits);
}

// The weights u - 8 of a word's eight nibbles, as halves: pairs[i] has those of nibbles i and i + 4.
__device__ __forceinline__ void widen(half2 (&pairs)[4], uint32_t word) {
    const half2 sixteenth = __float2half2_rn(1.0f / 16.0f);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t shifted = word >> (4 * i);
        const uint32_t low = and_or(shifted, 0x000f000f, 0x64006400);
        const uint32_t high = and_or(shifted, 0x00f000f0, 0x64006400);
        pairs[i] = __hsub2(as_half2(low), __float2half2_rn(1024.0f + 8.0f));
        pairs[i + 1] = __hfma2(as_half2(high), sixteenth, __float2half2_rn(-64.0f - 8.0f));
    }
}

// Eight elements of x in the pairs of widen: pairs[i] has elements i and i + 4.
__device__ __forceinline__ void pair_up(half2 (&pairs)[4], const uint4& x8) {
    pairs[0] = pairs[1] = pairs[2] = pairs[3] = half2{};
    // TODO(1): Make each pair with one byte move. (~4 lines)
    pairs[0] = as_half2(__byte_perm(x8.x, x8.z, 0x5410));
    pairs[1] = as_half2(__byte_perm(x8.x, x8.z, 0x7632));
    pairs[2] = as_half2(__byte_perm(x8.y, x8.w, 0x5410));
    pairs[3] = as_half2(__byte_perm(x8.y, x8.w, 0x7632));
    // END TODO(1)
}

// c += a @ b for a [16, 16], b [16, 8], c [16, 8]. PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point
// type", defines the fragments.
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const half2 (&a)[4], const half2 (&b)[2]) {
    const auto a_bits = reinterpret_cast<const uint32_t (&)[4]>(a);
    const auto b_bits = reinterpret_cast<const uint32_t (&)[2]>(b);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a_bits[0]), "r"(a_bits[1]), "r"(a_bits[2]), "r"(a_bits[3]), "r"(b_bits[0]), "r"(b_bits[1]));
}

// c += a @ b over the 128 k of a group. Rows 0 to 7 of a are the eight groups of the warp's load of one row, rows 8 to
// 15 those of the row below it. Columns of b are the eight groups of x. All 32 lanes must call it together.
__device__ __forceinline__ void multiply_groups(
    float (&c)[4], const uint4& upper, const uint4& lower, const half2 (&x)[VEC / 8][4]) {
    const uint32_t upper_words[4] = {upper.x, upper.y, upper.z, upper.w};
    const uint32_t lower_words[4] = {lower.x, lower.y, lower.z, lower.w};
#pragma unroll
    for (int i = 0; i < VEC / 8; ++i) {
        half2 upper_pairs[4], lower_pairs[4];
        widen(upper_pairs, upper_words[i]);
        widen(lower_pairs, lower_words[i]);
        // TODO(2): Two products: pairs 0 and 1 of both rows with those of x, then pairs 2 and 3. Registers 0 and 2 of
        //   fragment A are of the upper row. (~2 lines)
        mma_m16n8k16(c, {upper_pairs[0], lower_pairs[0], upper_pairs[1], lower_pairs[1]}, {x[i][0], x[i][1]});
        mma_m16n8k16(c, {upper_pairs[2], lower_pairs[2], upper_pairs[3], lower_pairs[3]}, {x[i][2], x[i][3]});
        // END TODO(2)
    }
}

__global__ void __launch_bounds__(THREADS, MIN_BLOCKS) w4a16_gemv_mma_f16_kernel(
    const int* __restrict__ q,   // [M, K / 8]
    const half* __restrict__ s,  // [M, K / GROUP]
    const half* __restrict__ x,  // [K]
    half* __restrict__ y,        // [M]
    int M, int groups) {
    const int K = groups * GROUP;
    const int lane_id = threadIdx.x % WARP_SIZE;
    // Offsets into q are 64-bit: M and K fit int, their product may not.
    const int64_t row = int64_t{blockIdx.x} * BLOCK_ROWS + threadIdx.x / WARP_SIZE * ROWS;
    if (row >= M) return;
    const int last = static_cast<int>(min(int64_t{ROWS - 1}, M - 1 - row));  // of the warp's rows
    const int* q_warp = q + row * (K / 8);
    const half* s_warp = s + row * groups;
    const int group_of_lane = lane_id / GROUP_LANES;
    bool on_diagonal = false;
    int place = 0;
    // TODO(3): A lane has columns 2 (lane_id % 4) and the next of row lane_id / 4 of c, in places 0 and 1. Which lane
    //   has the sum of its own group, and in which place? (~2 lines)
    on_diagonal = group_of_lane / 2 == lane_id % 4;
    place = group_of_lane % 2;
    // END TODO(3)
    float sum[ROWS] = {};
    for (int begin = 0; begin < K; begin += WARP_SIZE * VEC) {
        // All 32 lanes multiply. Those past the end of the row load its last columns, and have zeros in place of x.
        const int k = begin + lane_id * VEC;
        const int at = min(k, K - VEC);
        uint4 q_rmem[ROWS];
        half s_rmem[ROWS];
        uint4 x8_rmem[VEC / 8];
        const int* q_from = q_warp + at / 8;
        const half* s_from = s_warp + at / GROUP;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            q_rmem[r] = __ldcs(reinterpret_cast<const uint4*>(q_from));
            s_rmem[r] = *s_from;
            // A warp whose last rows lie past M loads the last row again, and does not store their sums.
            if (r < last) q_from += K / 8, s_from += groups;
        }
#pragma unroll
        for (int i = 0; i < VEC / 8; ++i) {
            x8_rmem[i] = *reinterpret_cast<const uint4*>(x + at + 8 * i);
            if (k >= K) x8_rmem[i] = uint4{};
        }
        half2 x_rmem[VEC / 8][4];
#pragma unroll
        for (int i = 0; i < VEC / 8; ++i) pair_up(x_rmem[i], x8_rmem[i]);
#pragma unroll
        for (int r = 0; r < ROWS; r += 2) {
            float c[4] = {};
            multiply_groups(c, q_rmem[r], q_rmem[r + 1], x_rmem);
            // TODO(4): Add what this lane has in its place of both rows, with the scale of its group. (~2 lines)
            sum[r] += __half2float(s_rmem[r]) * (place == 0 ? c[0] : c[1]);
            sum[r + 1] += __half2float(s_rmem[r + 1]) * (place == 0 ? c[2] : c[3]);
            // END TODO(4)
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        // TODO(5): Only the sums of lanes on the diagonal are of the row. (~1 line)
        sum[r] = warp_reduce_sum(on_diagonal ? sum[r] : 0.0f);
        // END TODO(5)
        if (lane_id == 0 && row + r < M) y[row + r] = __float2half(sum[r]);
    }
}

KATA_EXPORT void w4a16_gemv_mma_f16(
    const int* q, const half* s, const half* x, half* y, int M, int groups, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch. groups = 0 is valid: the sums are empty
    const int blocks = (M - 1) / BLOCK_ROWS + 1;
    w4a16_gemv_mma_f16_kernel<<<blocks, THREADS, 0, stream>>>(q, s, x, y, M, groups);
}
