// w8a16_gemv_f16: y[m] = s[m] * sum of q[m, k] * x[k] over k, weights in 8 bits
//
// Shapes     q: [M, K] int8, s: [M] f32, x: [K], y: [M] f16, row-major, contiguous, 16-byte aligned bases, any M >= 0,
//            K a multiple of 16; K = 0: y is 0
// Technique  one warp per ROWS rows; a load is 16 weights; a byte under the exponent of 1024 is a half
// New        over hgemv_k256_f16x8_pack_unrolled: the weights are bytes, and byte moves convert them
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int ROWS = 2;                                 // per warp: each vector of x serves all of them
constexpr int BLOCK_ROWS = THREADS / WARP_SIZE * ROWS;  // per block
constexpr int VEC = 16;                                 // weights in one load of 16 bytes
constexpr int MIN_BLOCKS = 4;                           // per SM: allows 64 registers per thread
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");

// Every lane gets the sum over the warp's 32 lanes. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// The int8 in bytes 0 to 3 of word, as halves: pairs[0] has those of bytes 0 and 1, pairs[1] those of bytes 2 and 3.
__device__ __forceinline__ void widen(half2 (&pairs)[2], uint32_t word) {
    pairs[0] = pairs[1] = half2{};
    // TODO(1): Convert without a conversion instruction. A half whose upper byte is 0x64 is 1024 + its lower byte, for
    //   any lower byte. That byte counts from 0, the weight from -128. (~4 lines)
    const uint32_t from_0 = word ^ 0x80808080;  // q + 128
    const uint32_t lower = __byte_perm(from_0, 0x64646464, 0x4140);
    const uint32_t upper = __byte_perm(from_0, 0x64646464, 0x4342);
    pairs[0] = __hsub2(reinterpret_cast<const half2&>(lower), __float2half2_rn(1024.0f + 128.0f));
    pairs[1] = __hsub2(reinterpret_cast<const half2&>(upper), __float2half2_rn(1024.0f + 128.0f));
    // END TODO(1)
}

// The products of 16 weights of a row with 16 elements of x, added to sum.
__device__ __forceinline__ float add_products(float sum, const uint4& weights, const float (&x)[VEC]) {
    const uint32_t words[4] = {weights.x, weights.y, weights.z, weights.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        half2 pairs[2];
        widen(pairs, words[i]);
        // TODO(2): Add the four products of word i, in float. (~5 lines)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const float2 pair = __half22float2(pairs[j]);
            sum += pair.x * x[4 * i + 2 * j];
            sum += pair.y * x[4 * i + 2 * j + 1];
        }
        // END TODO(2)
    }
    return sum;
}

__global__ void __launch_bounds__(THREADS, MIN_BLOCKS) w8a16_gemv_f16_kernel(
    const int8_t* __restrict__ q,  // [M, K]
    const float* __restrict__ s,   // [M]
    const half* __restrict__ x,    // [K]
    half* __restrict__ y,          // [M]
    int M, int K) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    // Offsets into q are 64-bit: M and K fit int, their product may not.
    const int64_t row = int64_t{blockIdx.x} * BLOCK_ROWS + threadIdx.x / WARP_SIZE * ROWS;
    if (row >= M) return;
    // A warp whose last rows lie past M loads the last row of q in their place, and does not store their sums.
    const int8_t* q_row[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) q_row[r] = q + (row + r < M ? row + r : M - 1) * K;
    float sum[ROWS] = {};
    for (int k = lane_id * VEC; k < K; k += WARP_SIZE * VEC) {
        uint4 q_rmem[ROWS] = {};
        // TODO(3): global -> registers: load the lane's vector of each row before the first product. Each weight is
        //   used once: load it by __ldcs (streaming). (~2 lines)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) q_rmem[r] = __ldcs(reinterpret_cast<const uint4*>(q_row[r] + k));
        // END TODO(3)
        alignas(uint4) half x_half[VEC];
        float x_rmem[VEC];
#pragma unroll
        for (int j = 0; j < VEC; j += 8)
            *reinterpret_cast<uint4*>(&x_half[j]) = *reinterpret_cast<const uint4*>(x + k + j);
#pragma unroll
        for (int j = 0; j < VEC; ++j) x_rmem[j] = __half2float(x_half[j]);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) sum[r] = add_products(sum[r], q_rmem[r], x_rmem);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        sum[r] = warp_reduce_sum(sum[r]);
        // TODO(4): Store the row's output once, if the row exists. The scale is the same for all of its terms.
        //   (~1 line)
        if (lane_id == 0 && row + r < M) y[row + r] = __float2half(s[row + r] * sum[r]);
        // END TODO(4)
    }
}

KATA_EXPORT void w8a16_gemv_f16(
    const int8_t* q, const float* s, const half* x, half* y, int M, int K, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch. K = 0 is valid: the sums are empty
    const int blocks = (M - 1) / BLOCK_ROWS + 1;
    w8a16_gemv_f16_kernel<<<blocks, THREADS, 0, stream>>>(q, s, x, y, M, K);
}
