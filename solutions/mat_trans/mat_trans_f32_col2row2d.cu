// mat_trans_f32_col2row2d: y = x transposed, one element per thread, square blocks, coalesced along x
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  a block owns a 16x16 tile; threadIdx.x runs along the rows of x
// New        over mat_trans_f32_col2row: blocks are squares, so the strided stores of a block share sectors
// Bound      memory instructions: a warp's store still touches 16 sectors for 128 bytes of data
#include "kata.cuh"
#include <cstdint>

constexpr int BLOCK_M = 16;
constexpr int BLOCK_N = 16;
constexpr int THREADS = BLOCK_M * BLOCK_N;  // one per element of the tile

__global__ void __launch_bounds__(THREADS) mat_trans_f32_col2row2d_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    // This block's BLOCK_M x BLOCK_N tile of x. Blocks go along the rows of tiles. Offsets into a matrix are 64-bit: M
    // and N fit int, but M * N may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    // TODO(1): Give every thread its own element of the tile. Consecutive threadIdx.x have neighbouring elements of x.
    //   (~2 lines)
    const int64_t row = off_m + threadIdx.y;
    const int64_t col = off_n + threadIdx.x;
    // END TODO(1)
    // TODO(2): Move the element to its place in y. A ragged tile reaches past x on the right, below, or both. Threads
    //   there access no memory. (~1 line)
    if (row < M && col < N) y[col * M + row] = x[row * N + col];
    // END TODO(2)
}

KATA_EXPORT void mat_trans_f32_col2row2d(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // The grid has one dimension, because y and z end at 65535: too few for a tall x. The count fits int: an x with
    // 2^31 tiles would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const dim3 threads(BLOCK_N, BLOCK_M);
    mat_trans_f32_col2row2d_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
