// Wrong: warps merge partial results that others have not written yet
// Kata: online_safe_softmax_f32
// Sim: race
// Gpu: pass | wrong answer: a warp must run ahead of another for it to show
// Line: // BUG
#include "kata.cuh"
#include <cfloat>
#include <cstdint>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");

// What is known of some elements of a row: their maximum, and the sum of exp(element - maximum).
struct Partial {
    float max;
    float sum;
};

// Of no elements at all. The lowest float stands in for -inf, since -inf - -inf is not 0 but nan.
__device__ __forceinline__ Partial nothing() {
    return {-FLT_MAX, 0.0f};
}

// What is known of the elements of both. An element x by itself is {x, 1}.
__device__ __forceinline__ Partial merge(Partial a, Partial b) {
    Partial merged = nothing();
    merged.max = fmaxf(a.max, b.max);
    merged.sum = a.sum * __expf(a.max - merged.max) + b.sum * __expf(b.max - merged.max);
    return merged;
}

// The lanes' partial results merged, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ Partial warp_reduce(Partial value) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
        const float max = __shfl_xor_sync(FULL_MASK, value.max, offset);
        const float sum = __shfl_xor_sync(FULL_MASK, value.sum, offset);
        value = merge(value, {max, sum});
    }
    return value;
}

// The threads' partial results merged, in every thread. All threads must call it together, and once in a kernel.
__device__ __forceinline__ Partial block_reduce(Partial value, Partial* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    value = warp_reduce(value);
    if (lane_id == 0) partial_smem[warp_id] = value;
    value = warp_reduce(lane_id < WARPS ? partial_smem[lane_id] : nothing());  // BUG
    return value;
}

__global__ void __launch_bounds__(THREADS)
    online_safe_softmax_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ Partial partial_smem[WARPS];
    const int tid = threadIdx.x;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    Partial row = nothing();
    for (int64_t col = tid; col < cols; col += THREADS) row = merge(row, {x_row[col], 1.0f});
    row = block_reduce(row, partial_smem);
    const float scale = 1.0f / row.sum;
    for (int64_t col = tid; col < cols; col += THREADS) y_row[col] = __expf(x_row[col] - row.max) * scale;
}

KATA_EXPORT void online_safe_softmax_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // One block per row. The x of a grid can count them all.
    online_safe_softmax_f32_kernel<<<rows, THREADS, 0, stream>>>(x, y, cols);
}
