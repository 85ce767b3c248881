// rms_norm_f16_f32: y[row, col] = x[row, col] / sqrt(mean of x^2 over the row + eps) * weight[col]
//
// Shapes     x, y: [rows, cols], weight: [cols] f16, row-major, contiguous, 16-byte aligned bases, any rows >= 1, cols
//            in 1..16384
// Technique  half loads, float arithmetic, one rounding to half at the end
// New        over rms_norm_f32: half tensors, so half the bytes; the arithmetic stays float
// Bound      memory instructions: a warp's load is 64 bytes
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

__global__ void __launch_bounds__(THREADS) rms_norm_f16_f32_kernel(
    const half* __restrict__ x, const half* __restrict__ weight, half* __restrict__ y, int cols, float eps) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const half* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    half* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    float scale = 0.0f;
    // TODO(1): Compute 1 / sqrt(mean of the squares + eps). Every element is a float as soon as it is loaded: the
    //   square of 256 overflows half. (~5 lines)
    float sum = 0.0f;
    for (int col = tid; col < cols; col += THREADS) {
        const float value = __half2float(x_row[col]);
        sum += value * value;
    }
    scale = rsqrtf(block_reduce_sum(sum, partial_smem) / cols + eps);
    // END TODO(1)
    // TODO(2): Write every column of the row once. Round to half only after the last operation. (~3 lines)
    for (int col = tid; col < cols; col += THREADS) {
        y_row[col] = __float2half(__half2float(x_row[col]) * scale * __half2float(weight[col]));
    }
    // END TODO(2)
}

KATA_EXPORT void rms_norm_f16_f32(
    const half* x, const half* weight, half* y, int rows, int cols, float eps, cudaStream_t stream) {
    // One block per row: gridDim.x may be any positive int.
    rms_norm_f16_f32_kernel<<<rows, THREADS, 0, stream>>>(x, weight, y, cols, eps);
}
