// residual_rms_norm_bf16: s = bf16(x + r), y[row, col] = s[row, col] / sqrt(mean of s^2 over the row + eps) * w[col]
//
// Shapes     x, r, s, y: [rows, cols], w: [cols] bf16, row-major, contiguous, 16-byte aligned bases, any rows >= 1,
//            cols in 1..16384; the mean is over s as it is stored
// Technique  128-bit loads of x and r; the row stays in registers as the bf16 that s gets, two to a register
// New        over rms_norm_f16x8_pack_f32: the sum is an output, and the norm is that of the rounded sum
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <cuda_bf16.h>

constexpr int THREADS = 1024;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int HELD = 16;  // elements of the row that a thread keeps in registers
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial sums of all warps");
static_assert(THREADS * HELD >= 16384, "the largest block holds the longest row");

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

// Pack is the type of one access, and VEC the number of its elements: 8 or 1.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(__nv_bfloat16);

// The elements of a pack as floats: a bf16 is the upper half of a float.
__device__ __forceinline__ void widen(float (&floats)[8], const uint4& pack) {
    const uint32_t words[4] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        floats[2 * i] = __uint_as_float(words[i] << 16);
        floats[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000);
    }
}

// The same for a single element.
__device__ __forceinline__ void widen(float (&floats)[1], const __nv_bfloat16& pack) {
    floats[0] = __bfloat162float(pack);
}

// Floats as a pack, each rounded to bf16.
__device__ __forceinline__ void narrow(uint4& pack, const float (&floats)[8]) {
    auto* pairs = reinterpret_cast<__nv_bfloat162*>(&pack);
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(floats[2 * i], floats[2 * i + 1]);
}

// The same for a single element.
__device__ __forceinline__ void narrow(__nv_bfloat16& pack, const float (&floats)[1]) {
    pack = __float2bfloat16(floats[0]);
}

template <typename Pack>
__global__ void __launch_bounds__(THREADS, 1) residual_rms_norm_bf16_kernel(
    const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ r, const __nv_bfloat16* __restrict__ w,
    __nv_bfloat16* __restrict__ s, __nv_bfloat16* __restrict__ y, int cols, float eps) {
    __shared__ float partial_smem[WARPS];
    constexpr int PACKS = HELD / VEC<Pack>;
    const int tid = threadIdx.x;
    const int step = blockDim.x * VEC<Pack>;                        // columns from one pack of a thread to its next
    const int64_t first = static_cast<int64_t>(blockIdx.x) * cols;  // of the row
    Pack s_rmem[PACKS] = {};                                        // x at first
    Pack r_rmem[PACKS] = {};
    // TODO(1): global -> registers: PACKS accesses of type Pack to x and as many to r, all before the first sum.
    //   Neighbouring threads load neighbouring packs. (~11 lines)
    // END TODO(1)
    float squares = 0.0f;  // of this thread's elements of s
    // TODO(2): registers -> global: round x + r to bf16, store it as s and keep it in s_rmem. Sum the squares in float,
    //   of the numbers that the next layer will read. (~12 lines)
    // END TODO(2)
    const float scale = rsqrtf(block_reduce_sum(squares, partial_smem) / cols + eps);
    // TODO(3): registers -> global: store y, nothing past the row. The row comes from s_rmem, not from memory; each
    //   product is rounded once. (~12 lines)
    // END TODO(3)
}

KATA_EXPORT void residual_rms_norm_bf16(
    const __nv_bfloat16* x, const __nv_bfloat16* r, const __nv_bfloat16* w, __nv_bfloat16* s, __nv_bfloat16* y,
    int rows, int cols, float eps, cudaStream_t stream) {
    // One block per row, with just enough warps to hold the row.
    const int warps = (cols - 1) / (WARP_SIZE * HELD) + 1;
    // All rows start at a multiple of 16 bytes only if 8 divides cols.
    const auto kernel =
        cols % 8 == 0 ? residual_rms_norm_bf16_kernel<uint4> : residual_rms_norm_bf16_kernel<__nv_bfloat16>;
    kernel<<<rows, warps * WARP_SIZE, 0, stream>>>(x, r, w, s, y, cols, eps);
}
