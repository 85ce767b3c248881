// safe_softmax_f32x4_warp: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max) over the row, one warp per row
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1
// Technique  a block of four warps takes four rows; each warp holds its row in registers and reduces by shuffles only
// New        over safe_softmax_f32x4: no shared memory and no barrier; one block per short row would leave the SM short
//            of warps
// Bound      memory bandwidth
#include "kata.cuh"
#include <cmath>
#include <cstdint>

constexpr int THREADS = 128;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;  // per block, each with a row of its own
constexpr int HELD = 32;                    // elements of the row that a thread keeps in registers
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");

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

template <typename Pack>
__global__ void __launch_bounds__(THREADS)
    safe_softmax_f32x4_warp_kernel(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    // One warp owns the row: its lanes take the place of the block's threads.
    const int tid = threadIdx.x % WARP_SIZE;
    constexpr int threads = WARP_SIZE;
    const int64_t rest = HELD * threads;  // columns from here on are in no register
    int64_t row = 0;
    // TODO(1): Give each warp its own row. A warp without a row returns as a whole. No warp waits for it: there is no
    //   barrier. (~2 lines)
    // END TODO(1)
    const float* x_row = x + row * cols;
    float* y_row = y + row * cols;
    alignas(Pack) float x_rmem[HELD];
#pragma unroll
    for (float& value : x_rmem) value = -INFINITY;
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
        if (col < cols) load<Pack>(x_rmem + i, x_row + col);
    }
    float max = -INFINITY;
    // TODO(2): Find the row's maximum: over the registers, over the columns from rest on, and over the warp's lanes.
    //   (~4 lines)
    // END TODO(2)
    float sum = 0.0f;
    // TODO(3): Find the sum of the exponentials in the same way. The exponentials of the registers replace the
    //   elements. (~7 lines)
    // END TODO(3)
    const float scale = 1.0f / sum;
    // TODO(4): registers -> global: store what the registers hold with accesses of type Pack, and nothing past the row.
    //   Then write the columns from rest on. (~8 lines)
    // END TODO(4)
}

KATA_EXPORT void safe_softmax_f32x4_warp(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    const int blocks = (rows - 1) / WARPS + 1;
    // All rows start at a multiple of 16 bytes only where cols is a multiple of 4.
    const auto kernel = cols % 4 == 0 ? safe_softmax_f32x4_warp_kernel<float4> : safe_softmax_f32x4_warp_kernel<float>;
    kernel<<<blocks, THREADS, 0, stream>>>(x, y, rows, cols);
}
