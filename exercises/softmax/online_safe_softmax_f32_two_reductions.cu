// online_safe_softmax_f32_two_reductions: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max), in two passes
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1
// Technique  one pass keeps a running maximum and a running sum, rescaled when the maximum rises; the block reduces the
//            maximum, then the threads' sums, each rescaled to it; a second pass stores
// New        over safe_softmax_f32: the row is read twice instead of three times
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
    // TODO(1): Both sums must be relative to the larger of the two maxima before they are added. Rescale each by the
    //   exponential of its own maximum minus the larger one. (~2 lines)
    // END TODO(1)
    return merged;
}

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

__global__ void __launch_bounds__(THREADS)
    online_safe_softmax_f32_two_reductions_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    Partial row = nothing();
    // TODO(2): In one pass over this thread's share of the row, update maximum and sum with each element. (~1 line)
    // END TODO(2)
    float max = row.max;
    float sum = row.sum;
    // TODO(3): Find the row's maximum, and the sum over all threads. Only sums relative to the same maximum may be
    //   added. This thread's sum is still relative to its own. (~2 lines)
    // END TODO(3)
    // TODO(4): Write every column of the row once. Divide once per row, not once per element. (~2 lines)
    // END TODO(4)
}

KATA_EXPORT void online_safe_softmax_f32_two_reductions(
    const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // One block per row. The x of a grid can count them all.
    online_safe_softmax_f32_two_reductions_kernel<<<rows, THREADS, 0, stream>>>(x, y, cols);
}
