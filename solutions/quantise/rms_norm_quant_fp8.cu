// rms_norm_quant_fp8: y = x / sqrt(mean of x^2 of the row + eps) * w, quantised in groups of 128 without being stored
//
// Shapes     x: [rows, groups, 128] bf16, w: [groups, 128] bf16, q: [rows, groups, 128] e4m3, s: [groups, rows] f32,
//            contiguous, 16-byte aligned bases, any rows >= 1, groups in 1..64
// Technique  one block per row, held in registers as bf16; a sum over the block, then maxima over 16 lanes
// New        over quant_fp8_block_bf16: two reductions of different width over one row that is read once
// Bound      memory bandwidth: 3 bytes per element; every call gives the same bits
#include "kata.cuh"
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

constexpr int THREADS = 256;        // of the largest block: a short row gets a smaller one
constexpr int VEC = 8;              // elements in one access: 16 bytes of x, 8 bytes of q
constexpr int LOADS = 4;            // vectors of the row that a thread keeps in registers
constexpr int GROUP = 128;          // neighbouring elements of a row that share a scale
constexpr int LANES = GROUP / VEC;  // that share a group: half a warp, called a team
constexpr float FP8_MAX = 448.0f;
constexpr float MIN_AMAX = 1e-10f;  // a group of zeros needs a scale that can divide
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial sums of all warps");
static_assert(THREADS * LOADS * VEC >= 64 * GROUP, "the largest block holds the longest row");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// The sum over the block's threads, in every thread. All threads must call it together, and only once per kernel: a
// second call would overwrite partial sums that a slow warp may still read.
__device__ __forceinline__ float block_reduce_sum(float sum, float* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : 0.0f);
    return sum;
}

// The largest over the LANES lanes of a team, in each of them. All 32 lanes of a warp must call it together.
__device__ __forceinline__ float team_reduce_max(float max) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) max = fmaxf(max, __shfl_xor_sync(FULL_MASK, max, offset));
    return max;
}

// The VEC elements of a vector as floats: a bf16 is the upper half of a float.
__device__ __forceinline__ void unpack(float (&floats)[VEC], const uint4& vector) {
    const uint32_t words[VEC / 2] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i) {
        floats[2 * i] = __uint_as_float(words[i] << 16);
        floats[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000);
    }
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

__global__ void __launch_bounds__(THREADS) rms_norm_quant_fp8_kernel(
    const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ w, __nv_fp8_e4m3* __restrict__ q,
    float* __restrict__ s, int rows, int groups, float eps) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const int cols = groups * GROUP;
    const int vectors = cols / VEC;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * cols;  // of x and q: the row's first element
    const uint4* x_vectors = reinterpret_cast<const uint4*>(x + first);
    const uint4* w_vectors = reinterpret_cast<const uint4*>(w);
    uint2* q_vectors = reinterpret_cast<uint2*>(q + first);
    uint4 x_rmem[LOADS] = {};  // what the row does not reach stays 0
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        if (tid + i * threads < vectors) x_rmem[i] = x_vectors[tid + i * threads];
    }
    float rstd = 0.0f;
    // TODO(1): Compute 1 / sqrt(mean of the squares + eps) of the row, in every thread. (~8 lines)
    float sum = 0.0f;
#pragma unroll
    for (const uint4& vector : x_rmem) {
        float floats[VEC];
        unpack(floats, vector);
#pragma unroll
        for (const float element : floats) sum += element * element;
    }
    rstd = rsqrtf(block_reduce_sum(sum, partial_smem) / cols + eps);
    // END TODO(1)
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const int v = tid + i * threads;
        float y_rmem[VEC] = {};  // what the row does not reach stays 0
        // TODO(2): The VEC elements of y, in f32, without rounding to bf16. Load the weights only here. (~7 lines)
        if (v < vectors) {
            float w_rmem[VEC];
            unpack(y_rmem, x_rmem[i]);
            unpack(w_rmem, w_vectors[v]);
#pragma unroll
            for (int j = 0; j < VEC; ++j) y_rmem[j] *= rstd * w_rmem[j];
        }
        // END TODO(2)
        float scale = 1.0f;
        // TODO(3): The scale of the vector's group. All 32 lanes take part, also those past
        //   the row. (~4 lines)
        float amax = 0.0f;
#pragma unroll
        for (const float element : y_rmem) amax = fmaxf(amax, fabsf(element));
        scale = fmaxf(team_reduce_max(amax), MIN_AMAX) / FP8_MAX;
        // END TODO(3)
        // TODO(4): Store the codes, and the group's scale once. (~4 lines)
        if (v < vectors) {
            q_vectors[v] = quantise(y_rmem, scale);
            if (v % LANES == 0) s[static_cast<int64_t>(v / LANES) * rows + blockIdx.x] = scale;
        }
        // END TODO(4)
    }
}

KATA_EXPORT void rms_norm_quant_fp8(
    const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_fp8_e4m3* q, float* s, int rows, int groups, float eps,
    cudaStream_t stream) {
    // One block per row, with just enough warps to hold the row.
    const int warps = (groups * GROUP - 1) / (WARP_SIZE * LOADS * VEC) + 1;
    rms_norm_quant_fp8_kernel<<<rows, warps * WARP_SIZE, 0, stream>>>(x, w, q, s, rows, groups, eps);
}
