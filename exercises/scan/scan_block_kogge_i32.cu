// scan_block_kogge_i32: y[r, i] = x[r, 0] + ... + x[r, i], the inclusive scan of each row of up to 1024 integers
//
// Shapes     x: [rows, cols] i32, row-major, contiguous, y: [rows, cols] i32, rows >= 1, 1 <= cols <= 1024, sums fit 32
//            bits
// Technique  one block per row, one thread per element, in shared memory; step d adds the place d to the left, for d =
//            1, 2, 4, ... (Kogge-Stone)
// New        over scan_warp_i32: the lanes become threads of several warps, which only a barrier keeps in step
// Bound      latency: ten steps with two barriers each
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 1024;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;

__global__ void __launch_bounds__(THREADS)
    scan_block_kogge_i32_kernel(const int* __restrict__ x, int* __restrict__ y, int cols) {
    __shared__ int sums_smem[THREADS];
    const int tid = threadIdx.x;
    const int64_t off = static_cast<int64_t>(blockIdx.x) * cols;  // of this block's row
    int sum = 0;  // of this thread's place: always what sums_smem[tid] holds after a step
    // TODO(1): global -> shared: each thread loads the element of its own place, 0 past the end of the row. (~2 lines)
    // END TODO(1)
    // TODO(2): For d = 1, 2, 4, ... below cols: each place from d on adds what the place d to the left held before this
    //   step. No thread may read what another wrote in the same step, nor write what another still reads. (~7 lines)
    // END TODO(2)
    if (tid < cols) y[off + tid] = sum;
}

KATA_EXPORT void scan_block_kogge_i32(const int* x, int* y, int rows, int cols, cudaStream_t stream) {
    const int threads = ((cols - 1) / WARP_SIZE + 1) * WARP_SIZE;  // whole warps
    scan_block_kogge_i32_kernel<<<rows, threads, 0, stream>>>(x, y, cols);
}
