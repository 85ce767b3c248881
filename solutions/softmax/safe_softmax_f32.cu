// safe_softmax_f32: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max) over the row, one block per row
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1
// Technique  three passes along the row: the maximum, the sum of exponentials, the quotients
// New        over softmax_f32: no exponential is above 1, so none overflows; a second reduction over the block
// Bound      memory bandwidth and caches: the row is read three times
#include "kata.cuh"
#include <cmath>
#include <cstdint>

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
    // TODO(1): registers -> shared -> registers, as for one sum, but called twice with the same partial_smem. No warp
    //   may overwrite a partial result that another warp still needs, or read one before it is written. (~4 lines)
    // A slow warp may still read the partial results of the call before.
    __syncthreads();
    if (lane_id == 0) partial_smem[warp_id] = value;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    value = warp_reduce(lane_id < WARPS ? partial_smem[lane_id] : neutral, op);
    // END TODO(1)
    return value;
}

__global__ void __launch_bounds__(THREADS)
    safe_softmax_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    // TODO(2): Find the row's maximum, in every thread. Start from a value that no element is below: cols may be less
    //   than THREADS, and elements may be -inf. (~3 lines)
    float max = -INFINITY;
    for (int64_t col = tid; col < cols; col += THREADS) max = fmaxf(max, x_row[col]);
    max = block_reduce(max, -INFINITY, partial_smem, Max());
    // END TODO(2)
    // TODO(3): Sum the exponentials of x - max over all threads. (~3 lines)
    float sum = 0.0f;
    for (int64_t col = tid; col < cols; col += THREADS) sum += __expf(x_row[col] - max);
    sum = block_reduce(sum, 0.0f, partial_smem, Add());
    // END TODO(3)
    // TODO(4): Write every column of the row once. Divide once per row, not once per element. (~2 lines)
    const float scale = 1.0f / sum;
    for (int64_t col = tid; col < cols; col += THREADS) y_row[col] = __expf(x_row[col] - max) * scale;
    // END TODO(4)
}

KATA_EXPORT void safe_softmax_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // One block per row. The x of a grid can count them all.
    safe_softmax_f32_kernel<<<rows, THREADS, 0, stream>>>(x, y, cols);
}
