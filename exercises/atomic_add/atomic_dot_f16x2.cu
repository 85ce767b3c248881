// atomic_dot_f16x2: y[c] = sum over r of a[r, c] * b[r, c], two products added by one atomic on a half2
//
// Shapes     a, b: [rows, cols] f16, row-major, contiguous, y: [cols] f16, 16-byte aligned bases, any rows >= 0,
//            cols >= 2 a multiple of 2; the sum of no products is 0
// Technique  one packed atomicAdd on a half2 per two products
// New        over atomic_dot_f16: a packed atomic is one hardware instruction; the atomic on a half is a loop
// Bound      atomic throughput: the fewer columns, the more products queue at each pair
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 2;  // columns per thread: half2 is 4 bytes

__global__ void __launch_bounds__(THREADS) atomic_dot_f16x2_kernel(
    const half* __restrict__ a,  // [rows, cols]
    const half* __restrict__ b,  // [rows, cols]
    half* __restrict__ y,        // [cols]
    int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;  // at most 2^31 - 1: blockDim.y is a power of two
    if (row >= rows) return;
    const int64_t row_start = static_cast<int64_t>(row) * cols;
    for (int64_t col = threadIdx.x * VEC; col < cols; col += blockDim.x * VEC) {
        // cols is a multiple of VEC, so every pair of a row begins at a multiple of 4 bytes.
        // TODO(1): Compute the products of the two columns from col on with one instruction, and add both to their sums
        //   with one atomic. (~3 lines)
        // END TODO(1)
    }
}

// Just enough threads for a row, so that one instruction covers a short row. A power of two, so that it divides
// THREADS.
static int threads_along_row(int cols) {
    int threads = 1;
    while (threads < THREADS && threads * VEC < cols) threads *= 2;
    return threads;
}

KATA_EXPORT void atomic_dot_f16x2(const half* a, const half* b, half* y, int rows, int cols, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, cols * sizeof(half), stream);  // all bits 0 is a half's 0, too
    if (rows == 0) return;                               // a grid of no blocks is an invalid launch
    const dim3 threads(threads_along_row(cols), THREADS / threads_along_row(cols));
    const int blocks = (rows - 1) / threads.y + 1;
    atomic_dot_f16x2_kernel<<<blocks, threads, 0, stream>>>(a, b, y, rows, cols);
}
