// atomic_dot_f16_fast: y[c] = sum over r of a[r, c] * b[r, c], every product added as one half of a half2
//
// Shapes     a, b: [rows, cols] f16, row-major, contiguous, y: [cols] f16, 16-byte aligned bases, any rows >= 0,
//            cols >= 1; the sum of no products is 0
// Technique  a product and a zero make a half2; one packed atomicAdd adds it to the aligned pair that has the column
// New        over atomic_dot_f16x2: any cols, one product per atomic, and still the packed atomic
// Bound      atomic throughput: the fewer columns, the more products queue at each pair
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;

// Adds to y[col] atomically, with the packed atomic where y has both columns of col's aligned pair.
__device__ __forceinline__ void add_padded(half* y, int64_t col, int cols, half value) {
    // TODO(1): y begins at a multiple of 16 bytes, so pairs begin at even columns. The other column of the pair must
    //   keep its value. Access nothing outside y, not even to add a zero. (~9 lines)
    const int64_t pair = col - col % 2;
    if (pair + 1 < cols) {
        const half zero = __float2half_rn(-0.0f);  // x + -0 is x for every x; -0 + +0 would be +0
        const half2 padded = col == pair ? __halves2half2(value, zero) : __halves2half2(zero, value);
        atomicAdd(reinterpret_cast<half2*>(y + pair), padded);
    } else {
        // The last of an odd number of columns: the half after it is not part of y.
        atomicAdd(y + col, value);
    }
    // END TODO(1)
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

// Just enough threads for a row, so that one instruction covers a short row. A power of two, so that it divides
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
