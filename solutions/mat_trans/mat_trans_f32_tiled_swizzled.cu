// mat_trans_f32_tiled_swizzled: y = x transposed, tile by tile through swizzled shared memory
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  a block loads a 32x32 tile along the rows of x and stores it along the rows of y; the tile's columns are
//            permuted
// New        over mat_trans_f32_tiled_padded: no bank conflicts and no padding: row i of the tile is permuted, column j
//            is at i ^ j
// Bound      memory bandwidth, with one 32-bit load and one 32-bit store per element
#include "kata.cuh"
#include <cstdint>

constexpr int TILE = 32;  // rows and columns of the tile: a warp covers one row
static_assert((TILE & (TILE - 1)) == 0, "exclusive or permutes 0..TILE-1 only where TILE is a power of two");
constexpr int BLOCK_ROWS = 8;               // rows of the tile that the block moves at a time
constexpr int THREADS = TILE * BLOCK_ROWS;  // each thread moves TILE / BLOCK_ROWS elements
static_assert(TILE % BLOCK_ROWS == 0, "the block takes the same number of rows in every step");

__global__ void __launch_bounds__(THREADS) mat_trans_f32_tiled_swizzled_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    __shared__ float tile_smem[TILE][TILE];  // as in x, but column j of row i is at [i][j ^ i]
    // This block's tile of x. Blocks go along the rows of tiles. Offsets into a matrix are 64-bit: M and N fit int, but
    // M * N may not.
    const int tiles_n = (N - 1) / TILE + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * TILE;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * TILE;
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    // TODO(1): global -> shared: load the part of the tile that exists, BLOCK_ROWS rows per step, coalesced along the
    //   rows of x. Store each element at its swizzled place. (~5 lines)
    // For one i, tx ^ i takes every value of 0..31 once: 32 lanes, 32 banks.
#pragma unroll
    for (int step = 0; step < TILE; step += BLOCK_ROWS) {
        const int i = step + ty;
        if (off_m + i < M && off_n + tx < N) tile_smem[i][tx ^ i] = x[(off_m + i) * N + off_n + tx];
    }
    // END TODO(1)
    // TODO(2): No thread may read an element of the tile before another thread has written it. (~1 line)
    // A thread stores elements that other warps loaded: a row of y is a column of the tile.
    __syncthreads();
    // END TODO(2)
    // TODO(3): shared -> global: store the transposed tile, BLOCK_ROWS rows of y per step, coalesced along the rows of
    //   y. Read every element from where it was written. A warp's 32 words come from 32 banks. (~5 lines)
    // For one i, i ^ tx takes every value of 0..31 once: a column's words lie in 32 banks, in another order.
#pragma unroll
    for (int step = 0; step < TILE; step += BLOCK_ROWS) {
        const int i = step + ty;
        if (off_n + i < N && off_m + tx < M) y[(off_n + i) * M + off_m + tx] = tile_smem[tx][i ^ tx];
    }
    // END TODO(3)
}

KATA_EXPORT void mat_trans_f32_tiled_swizzled(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // The grid has one dimension, because y and z end at 65535: too few for a tall x. The count fits int: an x with
    // 2^31 tiles would take terabytes.
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles_n = (N - 1) / TILE + 1;
    const dim3 threads(TILE, BLOCK_ROWS);
    mat_trans_f32_tiled_swizzled_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
