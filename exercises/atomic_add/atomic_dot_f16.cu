// atomic_dot_f16: y[c] = sum over r of a[r, c] * b[r, c], one atomic on a half per product
//
// Shapes     a, b: [rows, cols] f16, row-major, contiguous, y: [cols] f16, 16-byte aligned bases, any rows >= 0,
//            cols >= 1; the sum of no products is 0
// Technique  one atomicAdd on a half per product; threadIdx.x runs along a row, threadIdx.y counts rows
// New        over histogram_i32: atomics on halves, whose sums are rounded and depend on the order
// Bound      atomic throughput: the fewer columns, the more products queue at each
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) atomic_dot_f16_kernel(
    const half* __restrict__ a,  // [rows, cols]
    const half* __restrict__ b,  // [rows, cols]
    half* __restrict__ y,        // [cols]
    int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;  // at most 2^31 - 1: blockDim.y is a power of two
    if (row >= rows) return;
    const int64_t row_start = static_cast<int64_t>(row) * cols;
    for (int64_t col = threadIdx.x; col < cols; col += blockDim.x) {
        // TODO(1): Add this element's product to its column's sum, while any number of other threads add to it too.
        //   (~1 line)
        // END TODO(1)
    }
}

// Just enough threads for a row, so that one instruction covers a short row. A power of two, so that it divides
// THREADS.
static int threads_along_row(int cols) {
    int threads = 1;
    while (threads < THREADS && threads < cols) threads *= 2;
    return threads;
}

KATA_EXPORT void atomic_dot_f16(const half* a, const half* b, half* y, int rows, int cols, cudaStream_t stream) {
    // TODO(2): y holds old memory contents. All sums must be 0 before the first block adds to them, for no rows too.
    //   The stream orders this, and the host does not wait. (~1 line)
    // END TODO(2)
    if (rows == 0) return;  // a grid of no blocks is an invalid launch
    const dim3 threads(threads_along_row(cols), THREADS / threads_along_row(cols));
    const int blocks = (rows - 1) / threads.y + 1;
    atomic_dot_f16_kernel<<<blocks, threads, 0, stream>>>(a, b, y, rows, cols);
}
