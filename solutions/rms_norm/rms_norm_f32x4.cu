// rms_norm_f32x4: y[row, col] = x[row, col] / sqrt(mean of x^2 over the row + eps) * weight[col]
//
// Shapes     x, y: [rows, cols], weight: [cols] f32, row-major, contiguous, 16-byte aligned bases, any rows >= 1, cols
//            in 1..16384
// Technique  128-bit loads of up to 32 floats per thread, all passes over registers, 128-bit stores
// New        over rms_norm_f32: the row comes from memory once instead of two times; blocks as large as the row needs
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>

constexpr int WARP_SIZE = 32;
constexpr int MAX_WARPS = 16;
constexpr int MAX_THREADS = MAX_WARPS * WARP_SIZE;
constexpr int HELD = 32;  // elements of the row that a thread keeps in registers
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(MAX_WARPS <= WARP_SIZE, "one warp adds the partial sums of all warps");
static_assert(MAX_THREADS * HELD >= 16384, "the largest block holds the longest row");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// The sum over the block's threads, in every thread. All threads must call it together, and once in a kernel: a second
// call would overwrite partial sums that a slow warp may still read.
__device__ __forceinline__ float block_reduce_sum(float sum, float* partial_smem) {
    const int warps = blockDim.x / WARP_SIZE;
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < warps ? partial_smem[lane_id] : 0.0f);
    return sum;
}

// Pack is what one access moves. Its VEC elements divide cols: a vector lies in the row as a whole or not at all, and
// every row starts at a multiple of its size.
template <typename Pack>
__global__ void __launch_bounds__(MAX_THREADS, 2)  // 64 registers at most: one block loads while the other computes
    rms_norm_f32x4_kernel(
        const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ y, int cols, float eps) {
    constexpr int VEC = sizeof(Pack) / sizeof(float);
    __shared__ float partial_smem[MAX_WARPS];
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    alignas(Pack) float x_rmem[HELD];
    // TODO(1): global -> registers: HELD elements per thread, VEC by one access of type Pack, neighbouring threads on
    //   neighbouring vectors. What lies past the row must add nothing to a sum. Every index into x_rmem must be known
    //   once the loop is unrolled. (~9 lines)
#pragma unroll
    for (int i = 0; i < HELD; i += VEC) {
        const int col = i * threads + tid * VEC;
        if (col < cols) {
            *reinterpret_cast<Pack*>(x_rmem + i) = *reinterpret_cast<const Pack*>(x_row + col);
        } else {
#pragma unroll
            for (int j = i; j < i + VEC; ++j) x_rmem[j] = 0.0f;
        }
    }
    // END TODO(1)
    float sum = 0.0f;
    // TODO(2): Sum the squares of the whole row, over registers. (~3 lines)
#pragma unroll
    for (int i = 0; i < HELD; ++i) sum += x_rmem[i] * x_rmem[i];
    sum = block_reduce_sum(sum, partial_smem);
    // END TODO(2)
    const float scale = rsqrtf(sum / cols + eps);
    // TODO(3): registers -> global: load the weights and store y with accesses of type Pack, nothing past the row.
    //   (~11 lines)
#pragma unroll
    for (int i = 0; i < HELD; i += VEC) {
        const int col = i * threads + tid * VEC;
        if (col < cols) {
            alignas(Pack) float weight_rmem[VEC];
            *reinterpret_cast<Pack*>(weight_rmem) = *reinterpret_cast<const Pack*>(weight + col);
#pragma unroll
            for (int j = 0; j < VEC; ++j) x_rmem[i + j] *= scale * weight_rmem[j];
            *reinterpret_cast<Pack*>(y_row + col) = *reinterpret_cast<const Pack*>(x_rmem + i);
        }
    }
    // END TODO(3)
}

KATA_EXPORT void rms_norm_f32x4(
    const float* x, const float* weight, float* y, int rows, int cols, float eps, cudaStream_t stream) {
    // One block per row, of just enough warps to hold the row.
    const int warps = (cols - 1) / (WARP_SIZE * HELD) + 1;
    // Only where 4 divides cols do all rows start at a multiple of 16 bytes.
    if (cols % 4 == 0) {
        rms_norm_f32x4_kernel<float4><<<rows, warps * WARP_SIZE, 0, stream>>>(x, weight, y, cols, eps);
    } else {
        rms_norm_f32x4_kernel<float><<<rows, warps * WARP_SIZE, 0, stream>>>(x, weight, y, cols, eps);
    }
}
