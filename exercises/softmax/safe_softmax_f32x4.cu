// safe_softmax_f32x4: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max) over the row, the row in registers
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1
// Technique  128-bit loads of up to 32 floats per thread, all three passes over registers, 128-bit stores
// New        over safe_softmax_f32_held: a quarter of the memory instructions; the alignment of the rows decides on the
//            vector
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cmath>
#include <cstdint>

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
constexpr int VEC = sizeof(Pack) / sizeof(float);

// global -> registers: from[0..VEC-1]
template <typename Pack>
__device__ __forceinline__ void load(float* to_rmem, const float* from) {
    *reinterpret_cast<Pack*>(to_rmem) = *reinterpret_cast<const Pack*>(from);
}

// registers -> global: to[0..VEC-1]
template <typename Pack>
__device__ __forceinline__ void store(float* to, const float* from_rmem) {
    *reinterpret_cast<Pack*>(to) = *reinterpret_cast<const Pack*>(from_rmem);
}

// Two blocks per SM: at most 64 registers per thread, and one block loads while the other computes.
template <typename Pack>
__global__ void __launch_bounds__(THREADS, 2)
    safe_softmax_f32x4_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const int64_t rest = HELD * threads;  // columns from here on are in no register
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    alignas(Pack) float x_rmem[HELD];
    // TODO(1): global -> registers: HELD elements per thread, VEC per access of type Pack, neighbouring threads on
    //   neighbouring vectors. Places past the row must contribute nothing to a maximum or to a sum of exponentials.
    //   Every index into x_rmem must be known once the loop is unrolled. (~7 lines)
    // END TODO(1)
    float max = -INFINITY;
    // TODO(2): Find the row's maximum, first over the registers, then over the columns from rest on, which only a long
    //   row has. (~4 lines)
    // END TODO(2)
    float sum = 0.0f;
    // TODO(3): Sum the exponentials of x - max. Keep those of the registers, so that none of them is computed again.
    //   (~7 lines)
    // END TODO(3)
    const float scale = 1.0f / sum;
    // TODO(4): registers -> global: store what the registers hold with accesses of type Pack, and nothing past the row.
    //   Then write the columns from rest on. (~8 lines)
    // END TODO(4)
}

KATA_EXPORT void safe_softmax_f32x4(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // One block per row, of just enough warps to hold the row, WARPS at most.
    const int warps = std::min((cols - 1) / (WARP_SIZE * HELD) + 1, WARPS);
    // All rows start at a multiple of 16 bytes only where cols is a multiple of 4.
    const auto kernel = cols % 4 == 0 ? safe_softmax_f32x4_kernel<float4> : safe_softmax_f32x4_kernel<float>;
    kernel<<<rows, warps * WARP_SIZE, 0, stream>>>(x, y, cols);
}
