// softmax_warp_f32: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max) over a row of up to 1024
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows >= 1, cols in 1..1024
// Technique  one warp per row, the whole row in its registers; one kernel for each power of two of registers
// New        over safe_softmax_f32x4_warp: the row always fits, so each element is read once, and a short row runs code
//            of its own size
// Bound      memory bandwidth
#include "kata.cuh"
#include <cmath>
#include <cstdint>

constexpr int THREADS = 128;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;  // per block, each with a row of its own
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

// HELD: elements of the row that a lane keeps in registers. The warp holds the row: cols <= HELD * WARP_SIZE.
template <typename Pack, int HELD>
__global__ void __launch_bounds__(THREADS)
    softmax_warp_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    static_assert(HELD % VEC<Pack> == 0, "a lane holds whole vectors");
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP_SIZE;
    // A warp without a row returns as a whole. The kernel has no barrier, so no warp waits for it.
    if (row >= rows) return;
    const float* x_row = x + row * cols;
    float* y_row = y + row * cols;
    alignas(Pack) float x_rmem[HELD];
    // TODO(1): global -> registers: the whole row, by accesses of type Pack. Places past the row must contribute
    //   nothing to a maximum or to a sum of exponentials. (~7 lines)
    // END TODO(1)
    float sum = 0.0f;
    // TODO(2): Find the row's maximum and the sum of the exponentials of x - max, in every lane. The exponentials
    //   replace the elements. (~10 lines)
    // END TODO(2)
    const float scale = 1.0f / sum;
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * WARP_SIZE + lane_id * VEC<Pack>;
#pragma unroll
        for (int j = i; j < i + VEC<Pack>; ++j) x_rmem[j] *= scale;
        if (col < cols) store<Pack>(y_row + col, x_rmem + i);
    }
}

using Kernel = void (*)(const float*, float*, int, int);

// The kernel with the fewest registers that hold a row: 4, 8, 16 or 32.
template <typename Pack>
Kernel kernel_for(int cols) {
    // TODO(3): Choose HELD by cols: the warp must hold the row, and no lane may hold twice what it needs. (~3 lines)
    // END TODO(3)
    return softmax_warp_f32_kernel<Pack, 4>;
}

KATA_EXPORT void softmax_warp_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    const int blocks = (rows - 1) / WARPS + 1;
    // All rows start at a multiple of 16 bytes only where cols is a multiple of 4.
    const Kernel kernel = cols % 4 == 0 ? kernel_for<float4>(cols) : kernel_for<float>(cols);
    kernel<<<blocks, THREADS, 0, stream>>>(x, y, rows, cols);
}
