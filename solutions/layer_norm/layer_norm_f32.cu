// layer_norm_f32: y[row, col] = (x[row, col] - mean) / sqrt(variance + eps) * weight[col] + bias[col]
//
// Shapes     x, y: [rows, cols], weight, bias: [cols] f32, row-major, contiguous, 16-byte aligned bases, any rows >= 1,
//            cols in 1..16384
// Technique  three passes over the row: the mean, the variance about that mean, the output
// New        over safe_softmax_f32: two sums instead of a maximum and a sum; one weight and one bias per column, shared
//            by all rows
// Bound      memory bandwidth and caches: the row is read three times
#include "kata.cuh"
#include <cstdint>

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

// The sum over the block's threads, in every thread. All threads must call it together.
__device__ __forceinline__ float block_reduce_sum(float sum, float* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    // A slow warp may still read the partial sums of the previous call.
    __syncthreads();
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < WARPS ? partial_smem[lane_id] : 0.0f);
    return sum;
}

__global__ void __launch_bounds__(THREADS) layer_norm_f32_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ y, int cols, float eps) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    float mean = 0.0f;
    // TODO(1): Compute the row's mean: the sum over all columns, divided by cols. Every thread must know it. (~3 lines)
    float sum = 0.0f;
    for (int col = tid; col < cols; col += THREADS) sum += x_row[col];
    mean = block_reduce_sum(sum, partial_smem) / cols;
    // END TODO(1)
    float scale = 0.0f;
    // TODO(2): Compute 1 / sqrt(variance + eps). Every thread must know it. The variance is the sum of the squared
    //   distances from the mean, divided by cols. It is not a difference of two large sums. (~6 lines)
    float squares = 0.0f;
    for (int col = tid; col < cols; col += THREADS) {
        const float distance = x_row[col] - mean;
        squares += distance * distance;
    }
    scale = rsqrtf(block_reduce_sum(squares, partial_smem) / cols + eps);
    // END TODO(2)
    // TODO(3): Write every column of the row once, with the weight and the bias of its column. (~3 lines)
    for (int col = tid; col < cols; col += THREADS) {
        y_row[col] = (x_row[col] - mean) * scale * weight[col] + bias[col];
    }
    // END TODO(3)
}

KATA_EXPORT void layer_norm_f32(
    const float* x, const float* weight, const float* bias, float* y, int rows, int cols, float eps,
    cudaStream_t stream) {
    // One block per row: gridDim.x may be any positive int.
    layer_norm_f32_kernel<<<rows, THREADS, 0, stream>>>(x, weight, bias, y, cols, eps);
}
