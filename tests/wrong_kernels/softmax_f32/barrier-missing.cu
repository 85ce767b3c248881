// Wrong: warps read partial sums that other warps have perhaps not written yet
// Kata: softmax_f32
// Sim: race
// Gpu: pass | wrong answer | race: a warp must be late for it to show
// Line: // BUG
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// The sum over the block's threads, in every thread. All threads must call it together, and once in a kernel: a second
// call would overwrite partial sums that a slow warp may still read.
__device__ __forceinline__ float block_reduce_sum(float sum, float* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;  // BUG
    // Each warp adds all WARPS partial sums: dearer than one warp doing it, but nobody has to be told the result.
    sum = warp_reduce_sum(lane_id < WARPS ? partial_smem[lane_id] : 0.0f);  // BUG
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    softmax_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    float sum = 0.0f;
    // col is 64-bit: its last value lies up to THREADS past cols, which itself fits int.
    for (int64_t col = tid; col < cols; col += THREADS) sum += __expf(x_row[col]);
    const float scale = 1.0f / block_reduce_sum(sum, partial_smem);
    for (int64_t col = tid; col < cols; col += THREADS) y_row[col] = __expf(x_row[col]) * scale;
}

KATA_EXPORT void softmax_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // One block per row. The x of a grid can count them all.
    softmax_f32_kernel<<<rows, THREADS, 0, stream>>>(x, y, cols);
}
