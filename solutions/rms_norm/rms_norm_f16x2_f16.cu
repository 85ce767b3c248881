// rms_norm_f16x2_f16: y[row, col] = x[row, col] / sqrt(mean of x^2 over the row + eps) * weight[col]
//
// Shapes     x, y: [rows, cols], weight: [cols] f16, row-major, contiguous, 16-byte aligned bases, any rows >= 1, cols
//            in 1..16384
// Technique  32-bit loads and stores and packed half arithmetic if cols is even; otherwise one half at a time
// New        over rms_norm_f16_f16: one instruction moves, multiplies or adds two halves
// Bound      memory bandwidth and caches: the row is read twice
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial sums of all warps");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ half warp_reduce_sum(half sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
        // A shuffle moves 32-bit registers: the partner's sum travels as its 16 bits.
        const int bits = __shfl_xor_sync(FULL_MASK, __half_as_ushort(sum), offset);
        sum = __hadd(sum, __ushort_as_half(bits));
    }
    return sum;
}

// The sum over the block's threads, in every thread. All threads must call it together, and only once per kernel: a
// second call would overwrite partial sums that a slow warp may still read.
__device__ __forceinline__ half block_reduce_sum(half sum, half* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < WARPS ? partial_smem[lane_id] : half(0.0f));
    return sum;
}

// cuda_fp16.h has the arithmetic operators for half and for half2. Only these two functions depend on the type.
template <typename Pack>
__device__ __forceinline__ Pack splat(half value);
template <>
__device__ __forceinline__ half splat<half>(half value) {
    return value;
}
template <>
__device__ __forceinline__ half2 splat<half2>(half value) {
    return __half2half2(value);
}
__device__ __forceinline__ half sum_of(half value) {
    return value;
}
__device__ __forceinline__ half sum_of(half2 value) {
    return __hadd(__low2half(value), __high2half(value));
}

// Pack is the type of one access: half2 if cols is even (every row then starts at a multiple of 4 bytes), else half.
template <typename Pack>
__global__ void __launch_bounds__(THREADS) rms_norm_f16x2_f16_kernel(
    const half* __restrict__ x, const half* __restrict__ weight, half* __restrict__ y, int cols, float eps) {
    __shared__ half partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int packs = cols / (sizeof(Pack) / sizeof(half));
    const int64_t off_row = static_cast<int64_t>(blockIdx.x) * cols;
    const Pack* x_row = reinterpret_cast<const Pack*>(x + off_row);
    const Pack* weights = reinterpret_cast<const Pack*>(weight);
    Pack* y_row = reinterpret_cast<Pack*>(y + off_row);
    half scale = half(0.0f);
    // TODO(1): Compute 1 / sqrt(mean of the squares + eps). Each thread sums the squares of its packs of the row in
    //   half, each element of the pack separately. Compute mean, eps and root in float. (~3 lines)
    Pack sum = splat<Pack>(half(0.0f));
    for (int i = tid; i < packs; i += THREADS) sum += x_row[i] * x_row[i];
    scale = __float2half(rsqrtf(__half2float(block_reduce_sum(sum_of(sum), partial_smem)) / cols + eps));
    // END TODO(1)
    // TODO(2): Write every pack of the row once, in half arithmetic. (~1 lines)
    for (int i = tid; i < packs; i += THREADS) y_row[i] = x_row[i] * splat<Pack>(scale) * weights[i];
    // END TODO(2)
}

KATA_EXPORT void rms_norm_f16x2_f16(
    const half* x, const half* weight, half* y, int rows, int cols, float eps, cudaStream_t stream) {
    // One block per row. All rows start at a multiple of 4 bytes only if 2 divides cols.
    if (cols % 2 == 0) {
        rms_norm_f16x2_f16_kernel<half2><<<rows, THREADS, 0, stream>>>(x, weight, y, cols, eps);
    } else {
        rms_norm_f16x2_f16_kernel<half><<<rows, THREADS, 0, stream>>>(x, weight, y, cols, eps);
    }
}
