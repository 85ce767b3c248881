// mat_trans_f32_tiled_swizzled: y = x transposed, tile by tile through swizzled shared memory
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  a block loads a 32x32 tile along the rows of x and stores it along the rows of y; its columns are permuted
// New        over mat_trans_f32_tiled_padded: no bank conflicts, and no padding either: row i of the tile is permuted,
//            column j stands at i ^ j
// Bound      memory bandwidth, with one 32-bit access per element and thread on each side
#include "kata.cuh"
#include <cstdint>

constexpr int TILE = 32;  // rows and columns of the tile: one row of it a warp's worth
static_assert((TILE & (TILE - 1)) == 0, "exclusive or permutes 0..TILE-1 only where TILE is a power of two");
constexpr int BLOCK_ROWS = 8;               // rows of the tile that the block moves at a time
constexpr int THREADS = TILE * BLOCK_ROWS;  // each thread moves TILE / BLOCK_ROWS elements
static_assert(TILE % BLOCK_ROWS == 0, "the block takes the same number of rows in every step");

__global__ void __launch_bounds__(THREADS) mat_trans_f32_tiled_swizzled_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    __shared__ float tile_smem[TILE][TILE];  // as in x, but column j of row i stands at [i][j ^ i]
    // This block's tile of x; blocks go along the rows of tiles. Offsets into a matrix are 64-bit: M and N fit int,
    // their product need not.
    const int tiles_n = (N - 1) / TILE + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * TILE;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * TILE;
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    // TODO(1): global -> shared: load the part of the tile that exists, BLOCK_ROWS rows at a time, coalesced along the
    //   rows of x, each element to its swizzled place. (~5 lines)
    // END TODO(1)
    // TODO(2): No thread may read from the tile what another has not yet put there. (~1 line)
    // END TODO(2)
    // TODO(3): shared -> global: store the tile turned, BLOCK_ROWS rows of y at a time, coalesced along the rows of y.
    //   Every element comes from where it was put, and a warp's 32 words from 32 banks. (~5 lines)
    // END TODO(3)
}

KATA_EXPORT void mat_trans_f32_tiled_swizzled(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // One dimension of blocks, since y and z of a grid end at 65535: too few for a tall enough x. The count fits int:
    // 2^31 tiles would be an x of terabytes.
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles_n = (N - 1) / TILE + 1;
    const dim3 threads(TILE, BLOCK_ROWS);
    mat_trans_f32_tiled_swizzled_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
