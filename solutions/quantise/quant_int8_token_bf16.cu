// quant_int8_token_bf16: s[row] = max(max |x[row]|, 1e-10) / 127, q[row, col] = int8(round(x[row, col] / s[row]))
//
// Shapes     x: [rows, cols] bf16, q: [rows, cols] i8, s: [rows] f32, row-major, contiguous, 16-byte aligned bases, any
//            rows >= 1, cols in 1..16384
// Technique  one block per row, which stays in registers as bf16; 16-byte loads where 8 divides cols
// New        over quant_fp8_tensor_bf16: the scale belongs to a row, so one block knows it, and x is read once
// Bound      memory bandwidth: 3 bytes per element; every call gives the same bits
#include "kata.cuh"
#include <cstdint>
#include <cuda_bf16.h>

constexpr int THREADS = 512;  // of the largest block: a short row gets a smaller one
constexpr int HELD = 32;      // elements of the row that a thread keeps in registers
constexpr float INT8_MAX_F = 127.0f;
constexpr float MIN_AMAX = 1e-10f;  // a row of zeros needs a scale that can divide
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial maxima of all warps");
static_assert(THREADS * HELD >= 16384, "the largest block holds the longest row");

// The largest over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_max(float max) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) max = fmaxf(max, __shfl_xor_sync(FULL_MASK, max, offset));
    return max;
}

// The largest over the block's threads, in every thread. All threads must call it together, and only once per kernel: a
// second call would overwrite partial maxima that a slow warp may still read.
__device__ __forceinline__ float block_reduce_max(float max, float* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    max = warp_reduce_max(max);
    if (lane_id == 0) partial_smem[warp_id] = max;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    max = warp_reduce_max(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : 0.0f);
    return max;
}

// x / s as IEEE division rounds it for bf16 x and s = bf16 / constant, without a division: r is the rounded 1 / s.
__device__ __forceinline__ float quotient(float x, float s, float r) {
    const float q = x * r;
    return fmaf(fmaf(-q, s, x), r, q);
}

// Pack is the type of an access to x. Its VEC elements divide cols: a row holds only whole vectors. Codes is the type
// of VEC codes.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(__nv_bfloat16);

template <typename Pack, typename Codes>
__global__ void __launch_bounds__(THREADS) quant_int8_token_bf16_kernel(
    const __nv_bfloat16* __restrict__ x, int8_t* __restrict__ q, float* __restrict__ s, int cols) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const __nv_bfloat16* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    int8_t* q_row = q + static_cast<int64_t>(blockIdx.x) * cols;
    alignas(Pack) __nv_bfloat16 x_rmem[HELD] = {};  // what the row does not reach stays 0
    // TODO(1): global -> registers: HELD elements per thread, VEC elements per access of type Pack. Neighbouring
    //   threads load neighbouring vectors. Unrolling must make every index into x_rmem a constant. (~5 lines)
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
        if (col < cols) *reinterpret_cast<Pack*>(x_rmem + i) = *reinterpret_cast<const Pack*>(x_row + col);
    }
    // END TODO(1)
    float scale = 1.0f;
    // TODO(2): The row's scale, in every thread. Find the largest |x| of the registers first. One thread stores the
    //   scale. (~5 lines)
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; ++i) amax = fmaxf(amax, fabsf(__bfloat162float(x_rmem[i])));
    scale = fmaxf(block_reduce_max(amax, partial_smem), MIN_AMAX) / INT8_MAX_F;
    if (tid == 0) s[blockIdx.x] = scale;
    // END TODO(2)
    const float r = 1.0f / scale;
    // TODO(3): registers -> global: x / scale rounded to nearest even, VEC codes per access of type Codes. No code can
    //   leave -127..127. (~10 lines)
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
        if (col < cols) {
            alignas(Codes) int8_t q_rmem[VEC<Pack>];
#pragma unroll
            for (int j = 0; j < VEC<Pack>; ++j) {
                q_rmem[j] = static_cast<int8_t>(__float2int_rn(quotient(__bfloat162float(x_rmem[i + j]), scale, r)));
            }
            *reinterpret_cast<Codes*>(q_row + col) = *reinterpret_cast<const Codes*>(q_rmem);
        }
    }
    // END TODO(3)
}

KATA_EXPORT void quant_int8_token_bf16(
    const __nv_bfloat16* x, int8_t* q, float* s, int rows, int cols, cudaStream_t stream) {
    // One block per row, with just enough warps to hold the row.
    const int warps = (cols - 1) / (WARP_SIZE * HELD) + 1;
    // All rows start at a multiple of 16 bytes only if 8 divides cols.
    const auto kernel = cols % 8 == 0 ? quant_int8_token_bf16_kernel<uint4, uint2>
                                      : quant_int8_token_bf16_kernel<__nv_bfloat16, int8_t>;
    kernel<<<rows, warps * WARP_SIZE, 0, stream>>>(x, q, s, cols);
}
