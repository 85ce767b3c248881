// scan_block_brent_i32: y[r, i] = x[r, 0] + ... + x[r, i], the inclusive scan of each row of up to 1024 integers
//
// Shapes     x: [rows, cols] i32, row-major, contiguous, y: [rows, cols] i32, rows >= 1, 1 <= cols <= 1024, sums fit 32
//            bits
// Technique  one block per row; a tree up leaves sums of 2, 4, 8, ... places, a tree down completes the rest
//            (Brent-Kung); padded by one word per 32
// New        over scan_block_kogge_i32: 2n additions instead of n log n, in twice as many steps; their strides would
//            conflict in the banks
// Bound      latency: up to 19 steps with a barrier each, in most of which most warps have nothing to add
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 512;  // of the largest block: a short row gets a smaller one
constexpr int PLACES = 2 * THREADS;
constexpr int WARP_SIZE = 32;
constexpr int BANKS = 32;

// Where place i of the row is in shared memory. A warp's access in the tree up then has no bank conflict. In the tree
// down a warp's places begin d further to the right and end in the next row of banks: at most two lanes share a bank.
__device__ __forceinline__ int padded(int i) {
    // TODO(1): Leave one word free after every BANKS places. (~1 line)
    // END TODO(1)
}

__global__ void __launch_bounds__(THREADS)
    scan_block_brent_i32_kernel(const int* __restrict__ x, int* __restrict__ y, int cols) {
    __shared__ int sums_smem[PLACES + PLACES / BANKS];
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const int64_t off = static_cast<int64_t>(blockIdx.x) * cols;  // of this block's row
    for (int i = tid; i < cols; i += threads) sums_smem[padded(i)] = x[off + i];
    // TODO(2): The tree up: in step d = 1, 2, 4, ... every place 2d - 1, 4d - 1, 6d - 1, ... of the row adds the place
    //   d to its left. Neighbouring threads take neighbouring ones of these places. (~5 lines)
    // END TODO(2)
    // Place i now has the sum of as many places, itself the last, as the largest power of two that divides i + 1.
    // TODO(3): The tree down: in step d = ..., 4, 2, 1 every place 3d - 1, 5d - 1, 7d - 1, ... of the row adds the
    //   place d to its left, which is complete by then. (~5 lines)
    // END TODO(3)
    __syncthreads();  // a thread stores places that others completed
    for (int i = tid; i < cols; i += threads) y[off + i] = sums_smem[padded(i)];
}

KATA_EXPORT void scan_block_brent_i32(const int* x, int* y, int rows, int cols, cudaStream_t stream) {
    const int threads = ((cols - 1) / (2 * WARP_SIZE) + 1) * WARP_SIZE;  // whole warps, two places per thread
    scan_block_brent_i32_kernel<<<rows, threads, 0, stream>>>(x, y, cols);
}
