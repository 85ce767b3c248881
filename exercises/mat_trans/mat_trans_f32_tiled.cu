// mat_trans_f32_tiled: y = x transposed, tile by tile through shared memory
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  a block loads a 32x32 tile along the rows of x, transposes it, and stores it along the rows of y
// New        over mat_trans_f32_row2col2d: shared memory and a barrier; both loads and stores are coalesced
// Bound      shared memory, because of bank conflicts: the 32 lanes that read a column of the tile all access one bank
#include "kata.cuh"
#include <cstdint>

constexpr int TILE = 32;                    // rows and columns of the tile: a warp covers one row
constexpr int BLOCK_ROWS = 8;               // rows of the tile that the block moves at a time
constexpr int THREADS = TILE * BLOCK_ROWS;  // each thread moves TILE / BLOCK_ROWS elements
static_assert(TILE % BLOCK_ROWS == 0, "the block takes the same number of rows in every step");

__global__ void __launch_bounds__(THREADS) mat_trans_f32_tiled_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    __shared__ float tile_smem[TILE][TILE];  // as in x: [row][col]
    // This block's tile of x. Blocks go along the rows of tiles. Offsets into a matrix are 64-bit: M and N fit int, but
    // M * N may not.
    const int tiles_n = (N - 1) / TILE + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * TILE;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * TILE;
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    // TODO(1): global -> shared: load the part of the tile that exists, BLOCK_ROWS rows per step, coalesced along the
    //   rows of x. (~5 lines)
    // END TODO(1)
    // TODO(2): No thread may read an element of the tile before another thread has written it. (~1 line)
    // END TODO(2)
    // TODO(3): shared -> global: store the transposed tile, BLOCK_ROWS rows of y per step, coalesced along the rows of
    //   y. The guard compares rows and columns of y. (~5 lines)
    // END TODO(3)
}

KATA_EXPORT void mat_trans_f32_tiled(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // The grid has one dimension, because y and z end at 65535: too few for a tall x. The count fits int: an x with
    // 2^31 tiles would take terabytes.
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles_n = (N - 1) / TILE + 1;
    const dim3 threads(TILE, BLOCK_ROWS);
    mat_trans_f32_tiled_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
