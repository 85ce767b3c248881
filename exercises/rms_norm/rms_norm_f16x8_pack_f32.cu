// rms_norm_f16x8_pack_f32: y[row, col] = x[row, col] / sqrt(mean of x^2 over the row + eps) * weight[col]
//
// Shapes     x, y: [rows, cols], weight: [cols] f16, row-major, contiguous, 16-byte aligned bases, any rows >= 1, cols
//            in 1..16384
// Technique  128-bit loads of up to 32 halves per thread, kept as floats in registers, 128-bit stores
// New        over rms_norm_f32x4: eight elements per access, converted to float after the load, rounded before the
//            store
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

// Pack is the type of one access. Its VEC elements divide cols: a row holds only whole vectors, and every row starts at
// a multiple of its size.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(half);

// global -> registers: from[0..VEC-1] as floats
template <typename Pack>
__device__ __forceinline__ void load(float* to_rmem, const half* from) {
    alignas(Pack) half pack_rmem[VEC<Pack>];
    *reinterpret_cast<Pack*>(pack_rmem) = *reinterpret_cast<const Pack*>(from);
#pragma unroll
    for (int i = 0; i < VEC<Pack>; ++i) to_rmem[i] = __half2float(pack_rmem[i]);
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
__global__ void __launch_bounds__(THREADS, 2) rms_norm_f16x8_pack_f32_kernel(
    const half* __restrict__ x, const half* __restrict__ weight, half* __restrict__ y, int cols, float eps) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const half* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    half* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    float x_rmem[HELD] = {};  // what the row does not reach stays 0
    // TODO(1): global -> registers: HELD elements per thread, VEC elements per access of type Pack. Neighbouring
    //   threads load neighbouring vectors. Unrolling must make every index into x_rmem a constant. (~5 lines)
    // END TODO(1)
    float scale = 0.0f;
    // TODO(2): Compute 1 / sqrt(mean of the squares + eps) from the registers. Every thread must know it. The mean is
    //   over cols elements, not over all that the registers hold. (~4 lines)
    // END TODO(2)
    // TODO(3): registers -> global: load the weights, and store y, with accesses of type Pack, nothing past the row.
    //   (~10 lines)
    // END TODO(3)
}

KATA_EXPORT void rms_norm_f16x8_pack_f32(
    const half* x, const half* weight, half* y, int rows, int cols, float eps, cudaStream_t stream) {
    // One block per row, with just enough warps to hold the row.
    const int warps = (cols - 1) / (WARP_SIZE * HELD) + 1;
    // All rows start at a multiple of 16 bytes only if 8 divides cols.
    const auto kernel = cols % 8 == 0 ? rms_norm_f16x8_pack_f32_kernel<uint4> : rms_norm_f16x8_pack_f32_kernel<half>;
    kernel<<<rows, warps * WARP_SIZE, 0, stream>>>(x, weight, y, cols, eps);
}
