// mat_trans_f32_diagonal2d: y = x transposed, the tiles in diagonal order
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  blocks that start together have tiles in different rows and different columns of tiles
// New        over mat_trans_f32_row2col2d: only which block owns which tile
// Bound      memory instructions, as before: today's GPUs spread addresses over their memory themselves
#include "kata.cuh"
#include <cstdint>

constexpr int BLOCK_M = 16;
constexpr int BLOCK_N = 16;
constexpr int THREADS = BLOCK_M * BLOCK_N;  // one per element of the tile

__global__ void __launch_bounds__(THREADS) mat_trans_f32_diagonal2d_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    int tile_m = 0;
    int tile_n = 0;
    // TODO(1): From blockIdx.x, find this block's row and column of tiles. Consecutive blocks step down and to the
    //   right at once, around the edges. Every tile of any rectangle has exactly one block. (~2 lines)
    // END TODO(1)
    // Offsets into a matrix are 64-bit: M and N fit int, but M * N may not.
    const int64_t off_m = static_cast<int64_t>(tile_m) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(tile_n) * BLOCK_N;
    // TODO(2): Give every thread its own element of the tile. Consecutive threadIdx.x have neighbouring elements of y.
    //   (~2 lines)
    // END TODO(2)
    // TODO(3): Move the element to its place in y. A ragged tile reaches past x on the right, below, or both. Threads
    //   there access no memory. (~1 line)
    // END TODO(3)
}

KATA_EXPORT void mat_trans_f32_diagonal2d(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // The grid has one dimension, because y and z end at 65535: too few for a tall x. The count fits int: an x with
    // 2^31 tiles would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const dim3 threads(BLOCK_M, BLOCK_N);
    mat_trans_f32_diagonal2d_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
