// rms_norm_f32_held: y[row, col] = x[row, col] / sqrt(mean of x^2 over the row + eps) * weight[col]
//
// Shapes     x, y: [rows, cols], weight: [cols] f32, row-major, contiguous, 16-byte aligned bases, any rows >= 1, cols
//            in 1..16384
// Technique  each thread keeps up to 32 floats of the row in registers; all passes go over registers
// New        over rms_norm_f32: the row is read from memory once instead of twice; blocks are as large as the row needs
// Bound      memory bandwidth, and memory instructions: a warp's access is 128 bytes
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 512;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int HELD = 32;  // elements of the row that a thread keeps in registers
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

// Two blocks per SM: at most 64 registers per thread, and one block loads while the other computes.
__global__ void __launch_bounds__(THREADS, 2) rms_norm_f32_held_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ y, int cols, float eps) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    float x_rmem[HELD] = {};  // what the row does not reach stays 0
    // TODO(1): global -> registers: HELD elements per thread. Neighbouring threads load neighbouring columns. Unrolling
    //   must make every index into x_rmem a constant. (~5 lines)
    // END TODO(1)
    float scale = 0.0f;
    // TODO(2): Compute 1 / sqrt(mean of the squares + eps) from the registers. Every thread must know it. The mean is
    //   over cols elements, not over all that the registers hold. (~4 lines)
    // END TODO(2)
    // TODO(3): registers -> global: write every column of the row once, with the weight of its column. (~5 lines)
    // END TODO(3)
}

KATA_EXPORT void rms_norm_f32_held(
    const float* x, const float* weight, float* y, int rows, int cols, float eps, cudaStream_t stream) {
    // One block per row, with just enough warps to hold the row.
    const int warps = (cols - 1) / (WARP_SIZE * HELD) + 1;
    rms_norm_f32_held_kernel<<<rows, warps * WARP_SIZE, 0, stream>>>(x, weight, y, cols, eps);
}
