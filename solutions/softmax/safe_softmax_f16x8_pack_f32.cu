// safe_softmax_f16x8_pack_f32: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max) over the row, eight per
// access
//
// Shapes     x, y: [rows, cols] f16, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1
// Technique  128-bit loads of up to 32 halves per thread, kept as floats in registers, 128-bit stores
// New        over safe_softmax_f32x4: eight elements per access, converted to float after the load and to half before
//            the store
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 512;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int HELD = 32;  // elements of the row that a thread keeps in registers
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");

struct Add {
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
    __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// The lanes' values combined by op, in every lane. All 32 lanes must call it together.
template <typename Op>
__device__ __forceinline__ float warp_reduce(float value, Op op) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        value = op(value, __shfl_xor_sync(FULL_MASK, value, offset));
    return value;
}

// The threads' values combined by op, in every thread. op(neutral, x) is x. All threads must call it together.
template <typename Op>
__device__ __forceinline__ float block_reduce(float value, float neutral, float* partial_smem, Op op) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    value = warp_reduce(value, op);
    // A slow warp may still read the partial results of the call before.
    __syncthreads();
    if (lane_id == 0) partial_smem[warp_id] = value;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    value = warp_reduce(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : neutral, op);
    return value;
}

// Pack is what one access moves. Its VEC elements divide cols: a vector lies in the row as a whole or not at all, and
// every row starts at a multiple of its size.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(half);

// global -> registers: from[0..VEC-1] as floats
template <typename Pack>
__device__ __forceinline__ void load(float* to_rmem, const half* from) {
    // TODO(1): One access of type Pack, then VEC conversions in registers. (~4 lines)
    alignas(Pack) half pack_rmem[VEC<Pack>];
    *reinterpret_cast<Pack*>(pack_rmem) = *reinterpret_cast<const Pack*>(from);
#pragma unroll
    for (int i = 0; i < VEC<Pack>; ++i) to_rmem[i] = __half2float(pack_rmem[i]);
    // END TODO(1)
}

// registers -> global: to[0..VEC-1], each rounded once
template <typename Pack>
__device__ __forceinline__ void store(half* to, const float* from_rmem) {
    // TODO(2): VEC roundings to half in registers, then one access of type Pack. (~4 lines)
    alignas(Pack) half pack_rmem[VEC<Pack>];
#pragma unroll
    for (int i = 0; i < VEC<Pack>; ++i) pack_rmem[i] = __float2half(from_rmem[i]);
    *reinterpret_cast<Pack*>(to) = *reinterpret_cast<const Pack*>(pack_rmem);
    // END TODO(2)
}

// Two blocks per SM: at most 64 registers per thread, and one block loads while the other computes.
template <typename Pack>
__global__ void __launch_bounds__(THREADS, 2)
    safe_softmax_f16x8_pack_f32_kernel(const half* __restrict__ x, half* __restrict__ y, int cols) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const int64_t rest = HELD * threads;  // columns from here on are in no register
    const half* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    half* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    float x_rmem[HELD];
    // TODO(3): global -> registers: HELD elements per thread, VEC per access of type Pack, neighbouring threads on
    //   neighbouring vectors. Places past the row must contribute nothing to a maximum or to a sum of exponentials.
    //   Every index into x_rmem must be known once the loop is unrolled. (~7 lines)
#pragma unroll
    for (float& value : x_rmem) value = -INFINITY;
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
        if (col < cols) load<Pack>(x_rmem + i, x_row + col);
    }
    // END TODO(3)
    float max = -INFINITY;
    // TODO(4): Find the row's maximum, first over the registers, then over the columns from rest on, which only a long
    //   row has. (~4 lines)
#pragma unroll
    for (int i = 0; i < HELD; ++i) max = fmaxf(max, x_rmem[i]);
    for (int64_t col = rest + tid; col < cols; col += threads) max = fmaxf(max, __half2float(x_row[col]));
    max = block_reduce(max, -INFINITY, partial_smem, Max());
    // END TODO(4)
    float sum = 0.0f;
    // TODO(5): Sum the exponentials of x - max. Keep those of the registers, so that none of them is computed again.
    //   (~7 lines)
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        x_rmem[i] = __expf(x_rmem[i] - max);
        sum += x_rmem[i];
    }
    for (int64_t col = rest + tid; col < cols; col += threads) sum += __expf(__half2float(x_row[col]) - max);
    sum = block_reduce(sum, 0.0f, partial_smem, Add());
    // END TODO(5)
    const float scale = 1.0f / sum;
    // TODO(6): registers -> global: store what the registers hold with accesses of type Pack, and nothing past the row.
    //   Then write the columns from rest on. (~8 lines)
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
#pragma unroll
        for (int j = i; j < i + VEC<Pack>; ++j) x_rmem[j] *= scale;
        if (col < cols) store<Pack>(y_row + col, x_rmem + i);
    }
    for (int64_t col = rest + tid; col < cols; col += threads)
        y_row[col] = __float2half(__expf(__half2float(x_row[col]) - max) * scale);
    // END TODO(6)
}

KATA_EXPORT void safe_softmax_f16x8_pack_f32(const half* x, half* y, int rows, int cols, cudaStream_t stream) {
    // One block per row, of just enough warps to hold the row, WARPS at most.
    const int warps = std::min((cols - 1) / (WARP_SIZE * HELD) + 1, WARPS);
    // All rows start at a multiple of 16 bytes only where cols is a multiple of 8.
    const auto kernel =
        cols % 8 == 0 ? safe_softmax_f16x8_pack_f32_kernel<uint4> : safe_softmax_f16x8_pack_f32_kernel<half>;
    kernel<<<rows, warps * WARP_SIZE, 0, stream>>>(x, y, cols);
}
