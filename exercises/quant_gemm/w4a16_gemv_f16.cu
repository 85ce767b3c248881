// w4a16_gemv_f16: y[m] = sum of s[m, k / 128] * (u[m, k] - 8) * x[k] over k, weights in 4 bits
//
// Shapes     q: [M, K / 8] int, element i of a word in its bits 4 i to 4 i + 3, s: [M, K / 128], x: [K], y: [M] f16,
//            row-major, contiguous, 16-byte aligned bases, K = 128 * groups, any M, groups >= 0; groups = 0: y is 0
// Technique  one warp per ROWS rows; a load is 32 weights of one group; one lop3 makes two halves of a word
// New        over w8a16_gemv_f16: nibbles i and i + 4 of a word become a pair, and there is one scale per 128 weights
// Bound      instructions, close to memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 128;
constexpr int WARP_SIZE = 32;
constexpr int ROWS = 4;                                 // per warp: each vector of x serves all of them
constexpr int BLOCK_ROWS = THREADS / WARP_SIZE * ROWS;  // per block
constexpr int VEC = 32;                                 // weights in one load of 16 bytes
constexpr int GROUP = 128;                              // weights that share a scale
constexpr int MIN_BLOCKS = 5;                           // per SM: allows 96 registers per thread
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(GROUP % VEC == 0, "all weights of a load share a scale");

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

// The weights u - 8 of a word's eight nibbles, as halves: pairs[i] has those of nibbles i and i + 4.
__device__ __forceinline__ void widen(half2 (&pairs)[4], uint32_t word) {
    pairs[0] = pairs[1] = pairs[2] = pairs[3] = half2{};
    // TODO(1): Make each pair with one and_or and one operation on halves. Where the nibbles are the lowest four bits
    //   of each half, the half is 1024 + u. Where they are the next four bits, it is 1024 + 16 u. One shift of the word
    //   serves two pairs. (~9 lines)
    // END TODO(1)
}

// The sum of the products of 32 weights of a row with 32 elements of x.
__device__ __forceinline__ float dot(const uint4& weights, const float (&x)[VEC]) {
    const uint32_t words[4] = {weights.x, weights.y, weights.z, weights.w};
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        half2 pairs[4];
        widen(pairs, words[i]);
        // TODO(2): Add the eight products of word i, in float. (~5 lines)
        // END TODO(2)
    }
    return sum;
}

__global__ void __launch_bounds__(THREADS, MIN_BLOCKS) w4a16_gemv_f16_kernel(
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
    // A warp whose last rows lie past M loads the last row of q in their place, and does not store their sums.
    const int* q_row[ROWS];
    const half* s_row[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int64_t from = row + r < M ? row + r : M - 1;
        q_row[r] = q + from * (K / 8);
        s_row[r] = s + from * groups;
    }
    float sum[ROWS] = {};
    for (int k = lane_id * VEC; k < K; k += WARP_SIZE * VEC) {
        uint4 q_rmem[ROWS];
        half s_rmem[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            q_rmem[r] = __ldcs(reinterpret_cast<const uint4*>(q_row[r] + k / 8));
            s_rmem[r] = s_row[r][k / GROUP];
        }
        alignas(uint4) half x_half[VEC];
        float x_rmem[VEC];
#pragma unroll
        for (int j = 0; j < VEC; j += 8)
            *reinterpret_cast<uint4*>(&x_half[j]) = *reinterpret_cast<const uint4*>(x + k + j);
#pragma unroll
        for (int j = 0; j < VEC; ++j) x_rmem[j] = __half2float(x_half[j]);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            // TODO(3): Add the sum of this load's products to the row's sum, with the scale of their group. (~1 line)
            // END TODO(3)
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        sum[r] = warp_reduce_sum(sum[r]);
        if (lane_id == 0 && row + r < M) y[row + r] = __float2half(sum[r]);
    }
}

KATA_EXPORT void w4a16_gemv_f16(
    const int* q, const half* s, const half* x, half* y, int M, int groups, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch. groups = 0 is valid: the sums are empty
    const int blocks = (M - 1) / BLOCK_ROWS + 1;
    w4a16_gemv_f16_kernel<<<blocks, THREADS, 0, stream>>>(q, s, x, y, M, groups);
}
