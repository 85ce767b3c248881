// dequant_fp8_block: y[row, g, i] = bf16(q[row, g, i] * s[row, g]) for 128 codes i of each group g
//
// Shapes     q: [rows, groups, 128] e4m3, s: [rows, groups] f32, y: [rows, groups, 128] bf16, contiguous, 16-byte
//            aligned bases, any rows >= 0, groups >= 1
// Technique  8 codes per access become 16 bytes, converted two at a time through half
// New        over elementwise_f16x8_pack: codes of one byte, and a scale that 128 neighbours share
// Bound      memory bandwidth: 3 bytes per code, and 4 for every 128
#include "kata.cuh"
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;      // codes in one access: 8 bytes of q, 16 bytes of y
constexpr int LOADS = 4;    // per thread, in flight at once
constexpr int GROUP = 128;  // neighbouring codes of a row that share a scale
static_assert(GROUP % VEC == 0, "all codes of a vector have the same scale");

// Two e4m3 codes as floats: the lower byte first. A half holds every e4m3 number.
__device__ __forceinline__ float2 decode_pair(unsigned codes) {
    float2 pair = {};
    // TODO(1): Convert the lower 16 bits. Denormal codes and nan codes keep their meaning. (~2 lines)
    const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3);
    pair = __half22float2(halves);
    // END TODO(1)
    return pair;
}

// Groups follow one another in q, s and y without a gap, so rows do not matter.
__global__ void __launch_bounds__(THREADS) dequant_fp8_block_kernel(
    const uint2* __restrict__ q, const float* __restrict__ s, uint4* __restrict__ y, int64_t vectors) {
    const int64_t first = static_cast<int64_t>(blockIdx.x) * (THREADS * LOADS) + threadIdx.x;
    uint2 q_rmem[LOADS] = {};
    float s_rmem[LOADS] = {};
    // TODO(2): Load vectors first, first + THREADS, ..., LOADS in all, and the scale of each. Nothing past the last
    //   vector. (~5 lines)
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const int64_t v = first + i * THREADS;
        if (v < vectors) q_rmem[i] = q[v];
        if (v < vectors) s_rmem[i] = s[v / (GROUP / VEC)];
    }
    // END TODO(2)
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const int64_t v = first + i * THREADS;
        const unsigned codes[VEC / 2] = {q_rmem[i].x, q_rmem[i].x >> 16, q_rmem[i].y, q_rmem[i].y >> 16};
        alignas(uint4) __nv_bfloat162 y_rmem[VEC / 2] = {};
        // TODO(3): Decode the VEC codes, multiply in f32 and round once. (~5 lines)
#pragma unroll
        for (int j = 0; j < VEC / 2; ++j) {
            const float2 pair = decode_pair(codes[j]);
            y_rmem[j] = __floats2bfloat162_rn(pair.x * s_rmem[i], pair.y * s_rmem[i]);
        }
        // END TODO(3)
        if (v < vectors) y[v] = *reinterpret_cast<const uint4*>(y_rmem);
    }
}

KATA_EXPORT void dequant_fp8_block(
    const __nv_fp8_e4m3* q, const float* s, __nv_bfloat16* y, int rows, int groups, cudaStream_t stream) {
    if (rows == 0) return;  // a grid of no blocks is an invalid launch
    const int64_t vectors = static_cast<int64_t>(rows) * groups * (GROUP / VEC);
    const int blocks = static_cast<int>((vectors - 1) / (THREADS * LOADS) + 1);
    dequant_fp8_block_kernel<<<blocks, THREADS, 0, stream>>>(
        reinterpret_cast<const uint2*>(q), s, reinterpret_cast<uint4*>(y), vectors);
}
