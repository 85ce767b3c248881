// safe_softmax_f16x2_f32: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max) over the row, two halves per
// access
//
// Shapes     x, y: [rows, cols] f16, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1
// Technique  32-bit loads and stores along the row where cols is even, otherwise one half at a time
// New        over safe_softmax_f16_f32: one access moves two halves, as many bytes as a float
// Bound      memory bandwidth and caches: the row is read three times
#include "kata.cuh"
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
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
    value = warp_reduce(lane_id < WARPS ? partial_smem[lane_id] : neutral, op);
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
    // END TODO(1)
}

// registers -> global: to[0..VEC-1], each rounded once
template <typename Pack>
__device__ __forceinline__ void store(half* to, const float* from_rmem) {
    // TODO(2): VEC roundings to half in registers, then one access of type Pack. (~4 lines)
    // END TODO(2)
}

template <typename Pack>
__global__ void __launch_bounds__(THREADS)
    safe_softmax_f16x2_f32_kernel(const half* __restrict__ x, half* __restrict__ y, int cols) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const half* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    half* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    constexpr int STEP = THREADS * VEC<Pack>;
    float x_rmem[VEC<Pack>];
    // TODO(3): Find the row's maximum and then the sum of its exponentials, VEC neighbours at a time. The threads of a
    //   warp take neighbouring vectors. (~12 lines)
    // END TODO(3)
    // TODO(4): Write every column of the row once, VEC neighbours at a time. (~6 lines)
    // END TODO(4)
}

KATA_EXPORT void safe_softmax_f16x2_f32(const half* x, half* y, int rows, int cols, cudaStream_t stream) {
    // One block per row. Only where 2 divides cols do all rows start at a multiple of 4 bytes.
    const auto kernel = cols % 2 == 0 ? safe_softmax_f16x2_f32_kernel<half2> : safe_softmax_f16x2_f32_kernel<half>;
    kernel<<<rows, THREADS, 0, stream>>>(x, y, cols);
}
