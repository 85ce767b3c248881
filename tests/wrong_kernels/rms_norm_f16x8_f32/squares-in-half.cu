// Wrong: pairs are squared in half, before they become floats
// Kata: rms_norm_f16x8_f32
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int PACKS = 4;  // accesses per thread and step: eight halves as four half2
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial sums of all warps");

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
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < WARPS ? partial_smem[lane_id] : 0.0f);
    return sum;
}

__device__ __forceinline__ float squares_of(half value) {
    return __half2float(__hmul(value, value));
}
__device__ __forceinline__ float squares_of(half2 value) {
    const float2 squares = __half22float2(__hmul2(value, value));
    return squares.x + squares.y;
}
__device__ __forceinline__ half scaled(half value, float scale, half weight) {
    return __float2half(__half2float(value) * scale * __half2float(weight));
}
__device__ __forceinline__ half2 scaled(half2 value, float scale, half2 weight) {
    half2 result = __half2half2(half(0.0f));
    const float2 wide = __half22float2(value);
    const float2 weights = __half22float2(weight);
    result = __floats2half2_rn(wide.x * scale * weights.x, wide.y * scale * weights.y);
    return result;
}

// Pack is what one access moves: half2 where cols is even, so that all rows start at a multiple of 4 bytes, else half.
template <typename Pack>
__global__ void __launch_bounds__(THREADS) rms_norm_f16x8_f32_kernel(
    const half* __restrict__ x, const half* __restrict__ weight, half* __restrict__ y, int cols, float eps) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int packs = cols / (sizeof(Pack) / sizeof(half));
    const int64_t off_row = static_cast<int64_t>(blockIdx.x) * cols;
    const Pack* x_row = reinterpret_cast<const Pack*>(x + off_row);
    const Pack* weights = reinterpret_cast<const Pack*>(weight);
    Pack* y_row = reinterpret_cast<Pack*>(y + off_row);
    float scale = 0.0f;
    float sum = 0.0f;
    for (int first = tid * PACKS; first < packs; first += THREADS * PACKS) {
#pragma unroll
        for (int i = first; i < first + PACKS; ++i) {
            if (i < packs) sum += squares_of(x_row[i]);
        }
    }
    scale = rsqrtf(block_reduce_sum(sum, partial_smem) / cols + eps);
    for (int first = tid * PACKS; first < packs; first += THREADS * PACKS) {
#pragma unroll
        for (int i = first; i < first + PACKS; ++i) {
            if (i < packs) y_row[i] = scaled(x_row[i], scale, weights[i]);
        }
    }
}

KATA_EXPORT void rms_norm_f16x8_f32(
    const half* x, const half* weight, half* y, int rows, int cols, float eps, cudaStream_t stream) {
    // One block per row. Only where 2 divides cols do all rows start at a multiple of 4 bytes.
    if (cols % 2 == 0) {
        rms_norm_f16x8_f32_kernel<half2><<<rows, THREADS, 0, stream>>>(x, weight, y, cols, eps);
    } else {
        rms_norm_f16x8_f32_kernel<half><<<rows, THREADS, 0, stream>>>(x, weight, y, cols, eps);
    }
}
