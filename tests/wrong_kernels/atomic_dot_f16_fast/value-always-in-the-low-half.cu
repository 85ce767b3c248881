// Wrong: the product of an odd column is added to the even column's sum
// Kata: atomic_dot_f16_fast
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: rows=1, cols=2
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;

// Adds to y[col] atomically, with the packed atomic where y has both columns of the aligned pair that col is one of.
__device__ __forceinline__ void add_padded(half* y, int64_t col, int cols, half value) {
    const int64_t pair = col - col % 2;
    if (pair + 1 < cols) {
        const half zero = __float2half_rn(0.0f);
        const half2 padded = __halves2half2(value, zero);
        atomicAdd(reinterpret_cast<half2*>(y + pair), padded);
    } else {
        // The last of an odd number of columns: what lies beside it is somebody else's.
        atomicAdd(y + col, value);
    }
}

__global__ void __launch_bounds__(THREADS) atomic_dot_f16_fast_kernel(
    const half* __restrict__ a,  // [rows, cols]
    const half* __restrict__ b,  // [rows, cols]
    half* __restrict__ y,        // [cols]
    int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;  // at most 2^31 - 1: blockDim.y is a power of two
    if (row >= rows) return;
    const int64_t row_start = static_cast<int64_t>(row) * cols;
    for (int64_t col = threadIdx.x; col < cols; col += blockDim.x) {
        add_padded(y, col, cols, __hmul(a[row_start + col], b[row_start + col]));
    }
}

// Just enough threads for a row: then one instruction takes a short row whole. A power of two, so that it divides
// THREADS.
static int threads_along_row(int cols) {
    int threads = 1;
    while (threads < THREADS && threads < cols) threads *= 2;
    return threads;
}

KATA_EXPORT void atomic_dot_f16_fast(const half* a, const half* b, half* y, int rows, int cols, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, cols * sizeof(half), stream);  // all bits 0 is a half's 0, too
    if (rows == 0) return;                               // a grid of no blocks is an invalid launch
    const dim3 threads(threads_along_row(cols), THREADS / threads_along_row(cols));
    const int blocks = (rows - 1) / threads.y + 1;
    atomic_dot_f16_fast_kernel<<<blocks, threads, 0, stream>>>(a, b, y, rows, cols);
}
