// quant_fp8_block_bf16: of each group of 128 s = max(max |x|, 1e-10) / 448, q = e4m3(x / s); s is transposed
//
// Shapes     x: [rows, groups, 128] bf16, q: [rows, groups, 128] e4m3, s: [groups, rows] f32, contiguous, 16-byte
//            aligned bases, any rows >= 0, groups >= 1
// Technique  16 lanes reduce a group by four shuffles; half a warp takes 8 rows, so 8 lanes store 32 bytes of s
// New        over quant_int8_token_bf16: 128 elements share a scale: no barrier, and the scales leave transposed
// Bound      memory bandwidth: 3 bytes per element, and 4 for every 128; every call gives the same bits
#include "kata.cuh"
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;              // elements in one access: 16 bytes of x, 8 bytes of q
constexpr int GROUP = 128;          // neighbouring elements of a row that share a scale
constexpr int LANES = GROUP / VEC;  // that share a group: half a warp, called a team
constexpr int ROWS = 8;             // per team: their scales are 32 bytes, one sector
constexpr int TEAMS = THREADS / LANES;
constexpr float FP8_MAX = 448.0f;
constexpr float MIN_AMAX = 1e-10f;  // a group of zeros needs a scale that can divide
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(ROWS <= LANES, "each lane stores at most one scale");

// The VEC elements of a vector as floats: a bf16 is the upper half of a float.
__device__ __forceinline__ void unpack(float (&floats)[VEC], const uint4& vector) {
    const uint32_t words[VEC / 2] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i) {
        floats[2 * i] = __uint_as_float(words[i] << 16);
        floats[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000);
    }
}

// The larger of each half of most and the VEC sizes |x| of a vector, two per instruction.
__device__ __forceinline__ __nv_bfloat162 max_size(__nv_bfloat162 most, const uint4& vector) {
    const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&vector);
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i) most = __hmax2(most, __habs2(pairs[i]));
    return most;
}

// x / s as IEEE division rounds it for bf16 x and s = bf16 / constant, without a division: r is the rounded 1 / s.
__device__ __forceinline__ float quotient(float x, float s, float r) {
    const float q = x * r;
    return fmaf(fmaf(-q, s, x), r, q);
}

// VEC floats as e4m3 codes of floats / scale, rounded to nearest even.
__device__ __forceinline__ uint2 quantise(const float (&floats)[VEC], float scale) {
    const float r = 1.0f / scale;
    alignas(uint2) __nv_fp8x2_storage_t pairs[VEC / 2];
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i) {
        const float2 pair = make_float2(quotient(floats[2 * i], scale, r), quotient(floats[2 * i + 1], scale, r));
        pairs[i] = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3);
    }
    return *reinterpret_cast<const uint2*>(pairs);
}

// The largest over the LANES lanes of a team, in each of them. All 32 lanes of a warp must call it together.
__device__ __forceinline__ float team_reduce_max(float max) {
    // TODO(1): A butterfly that never leaves the team. (~4 lines)
    // END TODO(1)
    return max;
}

__global__ void __launch_bounds__(THREADS) quant_fp8_block_bf16_kernel(
    const __nv_bfloat16* __restrict__ x, __nv_fp8_e4m3* __restrict__ q, float* __restrict__ s, int rows, int groups) {
    const int lane = threadIdx.x % LANES;  // within the team
    const int team = blockIdx.x * TEAMS + threadIdx.x / LANES;
    const int group = team % groups;
    const int first_row = team / groups * ROWS;  // from rows on: the team has no work, but its lanes must shuffle
    const int cols = groups * GROUP;
    // The place in x and q of the lane's VEC elements in the team's first row.
    const int64_t first = static_cast<int64_t>(first_row) * cols + group * GROUP + lane * VEC;
    uint4 x_rmem[ROWS] = {};
    // TODO(2): Load the lane's vector of each of the ROWS rows, as far as there are any. (~4 lines)
    // END TODO(2)
    float scale_to_store = 0.0f;  // of row first_row + lane
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        // TODO(3): Find the scale of row first_row + i. Lane i remembers it. Store the codes. (~10 lines)
        // END TODO(3)
    }
    // TODO(4): The first ROWS lanes store the team's scales, as far as there are rows. (~3 lines)
    // END TODO(4)
}

KATA_EXPORT void quant_fp8_block_bf16(
    const __nv_bfloat16* x, __nv_fp8_e4m3* q, float* s, int rows, int groups, cudaStream_t stream) {
    if (rows == 0) return;  // a grid of no blocks is an invalid launch
    const int teams = ((rows - 1) / ROWS + 1) * groups;
    quant_fp8_block_bf16_kernel<<<(teams - 1) / TEAMS + 1, THREADS, 0, stream>>>(x, q, s, rows, groups);
}
