// add_bias_residual_layer_norm_f16: y = (s - mean) / sqrt(variance + eps) * gamma + beta, row by row,
//                                   s = x + residual + bias
//
// Shapes     x, residual, y: [rows, cols], bias, gamma, beta: [cols] f16, row-major, contiguous, 16-byte aligned bases,
//            any rows >= 0, cols in 1..16384
// Technique  128-bit loads, the sum in registers as up to 32 floats per thread, 128-bit stores
// New        over layer_norm_f16x8_pack_f32: the row is computed in registers from three inputs, and never stored
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

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
    sum = warp_reduce_sum(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : 0.0f);
    return sum;
}

// Pack is the type of one access. Its VEC elements divide cols: a row holds only whole vectors, and every row starts at
// a multiple of its size.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(half);

// registers -> registers: the VEC elements of a pack as floats
template <typename Pack>
__device__ __forceinline__ void widen(float* to_rmem, Pack from) {
#pragma unroll
    for (int i = 0; i < VEC<Pack>; ++i) to_rmem[i] = __half2float(reinterpret_cast<const half*>(&from)[i]);
}

// global -> registers: from[0..VEC-1] as floats
template <typename Pack>
__device__ __forceinline__ void load(float* to_rmem, const half* from) {
    widen(to_rmem, *reinterpret_cast<const Pack*>(from));
}

// registers -> global: to[0..VEC-1], each rounded once
template <typename Pack>
__device__ __forceinline__ void store(half* to, const float* from_rmem) {
    alignas(Pack) half pack_rmem[VEC<Pack>];
#pragma unroll
    for (int i = 0; i < VEC<Pack>; ++i) pack_rmem[i] = __float2half(from_rmem[i]);
    *reinterpret_cast<Pack*>(to) = *reinterpret_cast<const Pack*>(pack_rmem);
}

// Two blocks per SM: at most 64 registers per thread, and one block loads while the other computes.
template <typename Pack>
__global__ void __launch_bounds__(THREADS, 2) add_bias_residual_layer_norm_f16_kernel(
    const half* __restrict__ x, const half* __restrict__ residual, const half* __restrict__ bias,
    const half* __restrict__ gamma, const half* __restrict__ beta, half* __restrict__ y, int cols, float eps) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const half* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    const half* residual_row = residual + static_cast<int64_t>(blockIdx.x) * cols;
    half* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    Pack x_rmem[HELD / VEC<Pack>] = {};
    Pack residual_rmem[HELD / VEC<Pack>] = {};
    // TODO(1): global -> registers: HELD elements per thread of x and of residual, VEC by one access of type Pack, with
    //   neighbouring threads on neighbouring vectors. All loads come before the first sum. (~8 lines)
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
        if (col < cols) {
            x_rmem[i / VEC<Pack>] = *reinterpret_cast<const Pack*>(x_row + col);
            residual_rmem[i / VEC<Pack>] = *reinterpret_cast<const Pack*>(residual_row + col);
        }
    }
    // END TODO(1)
    float s_rmem[HELD] = {};  // registers past the row stay 0
    // TODO(2): Sum x, residual and bias in float: neither of the two additions is rounded to half. (~11 lines)
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
        if (col < cols) {
            float addend_rmem[VEC<Pack>], bias_rmem[VEC<Pack>];
            widen(s_rmem + i, x_rmem[i / VEC<Pack>]);
            widen(addend_rmem, residual_rmem[i / VEC<Pack>]);
            load<Pack>(bias_rmem, bias + col);
#pragma unroll
            for (int j = 0; j < VEC<Pack>; ++j) s_rmem[i + j] += addend_rmem[j] + bias_rmem[j];
        }
    }
    // END TODO(2)
    float mean = 0.0f;
    float scale = 0.0f;
    // TODO(3): Find the row's mean, then 1 / sqrt(variance + eps), both in every thread. The distances from the mean
    //   replace the elements. A register past the row has distance 0: where does the vector of register i start?
    //   (~11 lines)
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; ++i) sum += s_rmem[i];
    mean = block_reduce_sum(sum, partial_smem) / cols;
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const int col = i / VEC<Pack> * VEC<Pack> * threads + tid * VEC<Pack>;
        s_rmem[i] = col < cols ? s_rmem[i] - mean : 0.0f;
        squares += s_rmem[i] * s_rmem[i];
    }
    scale = rsqrtf(block_reduce_sum(squares, partial_smem) / cols + eps);
    // END TODO(3)
    // TODO(4): registers -> global: load gamma and beta and store y with accesses of type Pack. Store nothing past the
    //   row. (~11 lines)
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
        if (col < cols) {
            float gamma_rmem[VEC<Pack>], beta_rmem[VEC<Pack>];
            load<Pack>(gamma_rmem, gamma + col);
            load<Pack>(beta_rmem, beta + col);
#pragma unroll
            for (int j = 0; j < VEC<Pack>; ++j) s_rmem[i + j] = s_rmem[i + j] * scale * gamma_rmem[j] + beta_rmem[j];
            store<Pack>(y_row + col, s_rmem + i);
        }
    }
    // END TODO(4)
}

KATA_EXPORT void add_bias_residual_layer_norm_f16(
    const half* x, const half* residual, const half* bias, const half* gamma, const half* beta, half* y, int rows,
    int cols, float eps, cudaStream_t stream) {
    if (rows == 0) return;  // a grid of no blocks is an invalid launch
    // One block per row, with just enough warps to hold the row.
    const int warps = (cols - 1) / (WARP_SIZE * HELD) + 1;
    // All rows start at a multiple of 16 bytes only if 8 divides cols.
    const auto kernel =
        cols % 8 == 0 ? add_bias_residual_layer_norm_f16_kernel<uint4> : add_bias_residual_layer_norm_f16_kernel<half>;
    kernel<<<rows, warps * WARP_SIZE, 0, stream>>>(x, residual, bias, gamma, beta, y, cols, eps);
}
