// online_safe_softmax_f32x4_pack: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max) over the row, in registers
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1
// Technique  128-bit loads of up to 32 floats per thread, each thread's own maximum and sum, one merge over the block
// New        over online_safe_softmax_f32_held: a quarter of the memory instructions; the alignment of the rows decides
//            on the vector
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

constexpr int THREADS = 512;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int HELD = 32;  // elements of the row that a thread keeps in registers
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
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    value = warp_reduce(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : nothing());
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
    online_safe_softmax_f32x4_pack_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ Partial partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    alignas(Pack) float x_rmem[HELD];
    // TODO(1): global -> registers: HELD elements per thread, VEC per access of type Pack, neighbouring threads on
    //   neighbouring vectors. Places past the row must contribute nothing to a maximum or to a sum of exponentials.
    //   Every index into x_rmem must be known once the loop is unrolled. (~7 lines)
#pragma unroll
    for (float& value : x_rmem) value = -INFINITY;
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
        if (col < cols) load<Pack>(x_rmem + i, x_row + col);
    }
    // END TODO(1)
    Partial row = nothing();
    // TODO(2): Find the maximum of what this thread holds. It must not be below the lowest float. (~2 lines)
#pragma unroll
    for (int i = 0; i < HELD; ++i) row.max = fmaxf(row.max, x_rmem[i]);
    // END TODO(2)
    const float held_max = row.max;
    // TODO(3): Replace each register by its exponential relative to this thread's maximum; the row's is not known yet.
    //   Find their sum. (~5 lines)
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        x_rmem[i] = __expf(x_rmem[i] - held_max);
        row.sum += x_rmem[i];
    }
    // END TODO(3)
    // The columns that no register holds are added one by one.
    for (int64_t col = HELD * threads + tid; col < cols; col += threads) row = merge(row, {x_row[col], 1.0f});
    row = block_reduce(row, partial_smem);
    const float scale = 1.0f / row.sum;
    // TODO(4): registers -> global: rescale the exponentials from this thread's maximum to the row's with one common
    //   factor, and store them with accesses of type Pack. Store nothing past the row. (~8 lines)
    const float held_scale = __expf(held_max - row.max) * scale;
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
#pragma unroll
        for (int j = i; j < i + VEC<Pack>; ++j) x_rmem[j] *= held_scale;
        if (col < cols) store<Pack>(y_row + col, x_rmem + i);
    }
    // END TODO(4)
    for (int64_t col = HELD * threads + tid; col < cols; col += threads)
        y_row[col] = __expf(x_row[col] - row.max) * scale;
}

KATA_EXPORT void online_safe_softmax_f32x4_pack(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // One block per row, of just enough warps to hold the row, WARPS at most.
    const int warps = std::min((cols - 1) / (WARP_SIZE * HELD) + 1, WARPS);
    // All rows start at a multiple of 16 bytes only where cols is a multiple of 4.
    const auto kernel =
        cols % 4 == 0 ? online_safe_softmax_f32x4_pack_kernel<float4> : online_safe_softmax_f32x4_pack_kernel<float>;
    kernel<<<rows, warps * WARP_SIZE, 0, stream>>>(x, y, cols);
}
