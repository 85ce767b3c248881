// online_safe_softmax_f32: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max) over the row, in two passes
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1
// Technique  one pass keeps a running maximum and a running sum, rescaled when the maximum rises; a second pass stores
// New        over online_safe_softmax_f32_two_reductions: the block reduces once, in pairs of maximum and sum
// Bound      memory bandwidth and caches: the row is read twice
#include "kata.cuh"
#include <cfloat>
#include <cstdint>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");

// The maximum of some elements of a row, and their sum of exp(element - maximum).
struct Partial {
    float max;
    float sum;
};

// The pair of no elements. The lowest float stands in for -inf, because -inf - -inf is nan, not 0.
__device__ __forceinline__ Partial nothing() {
    return {-FLT_MAX, 0.0f};
}

// The pair of the elements of both. The pair of a single element x is {x, 1}.
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
        // TODO(1): Merge this lane's pair with the other lane's. A shuffle moves one register. (~3 lines)
        const float max = __shfl_xor_sync(FULL_MASK, value.max, offset);
        const float sum = __shfl_xor_sync(FULL_MASK, value.sum, offset);
        value = merge(value, {max, sum});
        // END TODO(1)
    }
    return value;
}

// The threads' partial results merged, in every thread. All threads must call it together, and once in a kernel.
__device__ __forceinline__ Partial block_reduce(Partial value, Partial* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    value = warp_reduce(value);
    // TODO(2): registers -> shared -> registers: one partial result per warp. Every warp then merges all of them. Lanes
    //   at or past WARPS contribute nothing() and do not read shared memory. (~4 lines)
    if (lane_id == 0) partial_smem[warp_id] = value;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    value = warp_reduce(lane_id < WARPS ? partial_smem[lane_id] : nothing());
    // END TODO(2)
    return value;
}

__global__ void __launch_bounds__(THREADS)
    online_safe_softmax_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ Partial partial_smem[WARPS];
    const int tid = threadIdx.x;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    Partial row = nothing();
    // TODO(3): In one pass over this thread's share of the row, update maximum and sum with each element. Then give
    //   every thread the pair of the whole row. (~2 lines)
    for (int64_t col = tid; col < cols; col += THREADS) row = merge(row, {x_row[col], 1.0f});
    row = block_reduce(row, partial_smem);
    // END TODO(3)
    // TODO(4): Write every column of the row once. Divide once per row, not once per element. (~2 lines)
    const float scale = 1.0f / row.sum;
    for (int64_t col = tid; col < cols; col += THREADS) y_row[col] = __expf(x_row[col] - row.max) * scale;
    // END TODO(4)
}

KATA_EXPORT void online_safe_softmax_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // One block per row. The x of a grid can count them all.
    online_safe_softmax_f32_kernel<<<rows, THREADS, 0, stream>>>(x, y, cols);
}
