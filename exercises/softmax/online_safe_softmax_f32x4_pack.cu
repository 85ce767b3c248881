// online_safe_softmax_f32x4_pack: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max) over the row, in registers
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1
// Technique  128-bit loads of up to 32 floats per thread, each thread's own maximum and sum, one merge over the block
// New        over online_safe_softmax_f32: the row comes from memory once, up to 16384 columns, and an element costs
//            one exponential: a thread rescales at the end what it took relative to its own maximum
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

constexpr int WARP_SIZE = 32;
constexpr int MAX_WARPS = 16;
constexpr int MAX_THREADS = MAX_WARPS * WARP_SIZE;
constexpr int HELD = 32;  // elements of the row that a thread keeps in registers
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(MAX_WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");

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
    const float max = fmaxf(a.max, b.max);
    return {max, a.sum * __expf(a.max - max) + b.sum * __expf(b.max - max)};
}

// The lanes' partial results merged, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ Partial warp_merge(Partial mine) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
        const float max = __shfl_xor_sync(FULL_MASK, mine.max, offset);
        const float sum = __shfl_xor_sync(FULL_MASK, mine.sum, offset);
        mine = merge(mine, {max, sum});
    }
    return mine;
}

// The threads' partial results merged, in every thread. All threads must call it together, and once in a kernel.
__device__ __forceinline__ Partial block_merge(Partial mine) {
    __shared__ Partial partial_smem[MAX_WARPS];
    const int warps = blockDim.x / WARP_SIZE;
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    mine = warp_merge(mine);
    if (lane_id == 0) partial_smem[warp_id] = mine;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    mine = warp_merge(lane_id < warps ? partial_smem[lane_id] : nothing());
    return mine;
}

// Pack is what one access moves. Its VEC elements divide cols: a vector lies in the row as a whole or not at all, and
// every row starts at a multiple of its size.
template <typename Pack>
__global__ void __launch_bounds__(MAX_THREADS, 2)  // 64 registers at most: one block loads while the other computes
    online_safe_softmax_f32x4_pack_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    constexpr int VEC = sizeof(Pack) / sizeof(float);
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const int64_t rest = HELD * threads;  // columns from here on are in no register
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    alignas(Pack) float x_rmem[HELD];
    // TODO(1): global -> registers: HELD elements per thread, VEC by one access of type Pack, neighbouring threads on
    //   neighbouring vectors. What lies past the row must count as nothing in a maximum and in a sum of exponentials.
    //   Every index into x_rmem must be known once the loop is unrolled. (~9 lines)
    // END TODO(1)
    Partial held = nothing();
    // TODO(2): Find the maximum and the sum of what this thread holds, each element becoming its exponential: relative
    //   to this thread's maximum, for no other is known yet. No maximum may be below the lowest float. (~6 lines)
    // END TODO(2)
    Partial row = held;
    for (int64_t col = rest + tid; col < cols; col += threads) row = merge(row, {x_row[col], 1.0f});
    row = block_merge(row);
    const float scale = 1.0f / row.sum;
    // TODO(3): registers -> global: bring the exponentials from this thread's maximum to the row's with one factor for
    //   all of them, and store with accesses of type Pack; nothing past the row. (~8 lines)
    // END TODO(3)
    for (int64_t col = rest + tid; col < cols; col += threads) y_row[col] = __expf(x_row[col] - row.max) * scale;
}

KATA_EXPORT void online_safe_softmax_f32x4_pack(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // One block per row, of just enough warps to hold the row, MAX_WARPS at most.
    const int warps = std::min((cols - 1) / (WARP_SIZE * HELD) + 1, MAX_WARPS);
    // Only where 4 divides cols do all rows start at a multiple of 16 bytes.
    if (cols % 4 == 0) {
        online_safe_softmax_f32x4_pack_kernel<float4><<<rows, warps * WARP_SIZE, 0, stream>>>(x, y, cols);
    } else {
        online_safe_softmax_f32x4_pack_kernel<float><<<rows, warps * WARP_SIZE, 0, stream>>>(x, y, cols);
    }
}
