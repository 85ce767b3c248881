// softmax_f32: y[row, col] = exp(x[row, col]) / sum of exp over the row, one block per row
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1, |x| <= 20 or
//            -inf
// Technique  the block's threads stride along the row: one pass sums the exponentials, a second writes the quotients
// New        over block_all_reduce_f32_f32: one sum per row, and every thread of the block needs it
// Bound      memory bandwidth and caches: the row is read twice
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
    // TODO(1): registers -> shared -> registers: one partial sum per warp, and then all of them in every warp. No
    //   thread may read a partial sum before it is written. Every thread must return the block's sum. (~4 lines)
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    // Each warp adds all WARPS partial sums. That is more work than one warp's sum, but needs no second barrier to
    // broadcast it.
    sum = warp_reduce_sum(lane_id < WARPS ? partial_smem[lane_id] : 0.0f);
    // END TODO(1)
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    softmax_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    float sum = 0.0f;
    // TODO(2): Each thread sums the exponentials of its share of the row. The THREADS threads together must cover every
    //   column once, coalesced, whether cols is below THREADS or near 2^31. col must not overflow past the end of the
    //   row. (~1 line)
    // col is 64-bit: its last value is up to THREADS past cols, and cols itself fits int.
    for (int64_t col = tid; col < cols; col += THREADS) sum += __expf(x_row[col]);
    // END TODO(2)
    // TODO(3): Write every column of the row once: its exponential divided by the row's sum, which needs all threads.
    //   Divide once per row, not once per element. (~2 lines)
    const float scale = 1.0f / block_reduce_sum(sum, partial_smem);
    for (int64_t col = tid; col < cols; col += THREADS) y_row[col] = __expf(x_row[col]) * scale;
    // END TODO(3)
}

KATA_EXPORT void softmax_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // One block per row. The x of a grid can count them all.
    softmax_f32_kernel<<<rows, THREADS, 0, stream>>>(x, y, cols);
}
