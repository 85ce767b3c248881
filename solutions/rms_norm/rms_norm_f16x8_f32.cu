// rms_norm_f16x8_f32: y[row, col] = x[row, col] / sqrt(mean of x^2 over the row + eps) * weight[col]
//
// Shapes     x, y: [rows, cols], weight: [cols] f16, row-major, contiguous, 16-byte aligned bases, any rows >= 1, cols
//            in 1..16384
// Technique  eight neighbouring halves per thread and step, in four 32-bit accesses; each pair is converted to float
//            after its load
// New        over rms_norm_f16x8_f16: squares and sums in float, which cannot overflow here
// Bound      memory instructions: each access of a warp spans 512 bytes and uses a quarter of them
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int PACKS = 4;  // accesses per thread and step: eight halves as four half2
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial sums of all warps");

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
    sum = warp_reduce_sum(lane_id < WARPS ? partial_smem[lane_id] : 0.0f);
    return sum;
}

__device__ __forceinline__ float squares_of(half value) {
    const float wide = __half2float(value);
    return wide * wide;
}
__device__ __forceinline__ float squares_of(half2 value) {
    const float2 wide = __half22float2(value);
    return wide.x * wide.x + wide.y * wide.y;
}
__device__ __forceinline__ half scaled(half value, float scale, half weight) {
    return __float2half(__half2float(value) * scale * __half2float(weight));
}
__device__ __forceinline__ half2 scaled(half2 value, float scale, half2 weight) {
    half2 result = __half2half2(half(0.0f));
    // TODO(1): Convert both pairs to float, multiply in float, and round each product to half once. (~3 lines)
    const float2 wide = __half22float2(value);
    const float2 weights = __half22float2(weight);
    result = __floats2half2_rn(wide.x * scale * weights.x, wide.y * scale * weights.y);
    // END TODO(1)
    return result;
}

// Pack is the type of one access: half2 if cols is even (every row then starts at a multiple of 4 bytes), else half.
template <typename Pack>
__global__ void __launch_bounds__(THREADS) rms_norm_f16x8_f32_kernel(
    const half* __restrict__ x, const half* __restrict__ weight, half* __restrict__ y, int cols, float eps) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int packs = cols / (sizeof(Pack) / sizeof(half));
    const int64_t off_row = static_cast<int64_t>(blockIdx.x) * cols;
    const Pack* x_row = reinterpret_cast<const Pack*>(x + off_row);
    const Pack* weights = reinterpret_cast<const Pack*>(weight);
    Pack* y_row = reinterpret_cast<Pack*>(y + off_row);
    float scale = 0.0f;
    // TODO(2): Compute 1 / sqrt(mean of the squares + eps). In each step a thread sums the squares of PACKS
    //   neighbouring packs of the row in float. Guard each pack: cols need not be a multiple of 8. (~8 lines)
    float sum = 0.0f;
    for (int first = tid * PACKS; first < packs; first += THREADS * PACKS) {
#pragma unroll
        for (int i = first; i < first + PACKS; ++i) {
            if (i < packs) sum += squares_of(x_row[i]);
        }
    }
    scale = rsqrtf(block_reduce_sum(sum, partial_smem) / cols + eps);
    // END TODO(2)
    // TODO(3): Write every pack of the row once. (~6 lines)
    for (int first = tid * PACKS; first < packs; first += THREADS * PACKS) {
#pragma unroll
        for (int i = first; i < first + PACKS; ++i) {
            if (i < packs) y_row[i] = scaled(x_row[i], scale, weights[i]);
        }
    }
    // END TODO(3)
}

KATA_EXPORT void rms_norm_f16x8_f32(
    const half* x, const half* weight, half* y, int rows, int cols, float eps, cudaStream_t stream) {
    // One block per row. All rows start at a multiple of 4 bytes only if 2 divides cols.
    if (cols % 2 == 0) {
        rms_norm_f16x8_f32_kernel<half2><<<rows, THREADS, 0, stream>>>(x, weight, y, cols, eps);
    } else {
        rms_norm_f16x8_f32_kernel<half><<<rows, THREADS, 0, stream>>>(x, weight, y, cols, eps);
    }
}
