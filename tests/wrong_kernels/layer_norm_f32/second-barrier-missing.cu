// Wrong: the variance's partial sums are written over the mean's, which slow warps still read
// Kata: layer_norm_f32
// Sim: race
// Gpu: pass | wrong answer | race: a warp must run ahead of another for it to show
// Line: // BUG
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
    if (lane_id == 0) partial_smem[warp_id] = sum;  // BUG
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < WARPS ? partial_smem[lane_id] : 0.0f);  // BUG
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
    float sum = 0.0f;
    for (int col = tid; col < cols; col += THREADS) sum += x_row[col];
    mean = block_reduce_sum(sum, partial_smem) / cols;
    float scale = 0.0f;
    float squares = 0.0f;
    for (int col = tid; col < cols; col += THREADS) {
        const float distance = x_row[col] - mean;
        squares += distance * distance;
    }
    scale = rsqrtf(block_reduce_sum(squares, partial_smem) / cols + eps);
    for (int col = tid; col < cols; col += THREADS) {
        y_row[col] = (x_row[col] - mean) * scale * weight[col] + bias[col];
    }
}

KATA_EXPORT void layer_norm_f32(
    const float* x, const float* weight, const float* bias, float* y, int rows, int cols, float eps,
    cudaStream_t stream) {
    // One block per row. The x of a grid can count them all.
    layer_norm_f32_kernel<<<rows, THREADS, 0, stream>>>(x, weight, bias, y, cols, eps);
}
