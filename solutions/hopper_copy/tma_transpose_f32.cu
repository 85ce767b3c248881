// tma_transpose_f32: y = x transposed, tensor copies in and out, transposed in shared memory between them
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, M and N multiples of 4
// Technique  a box of 32 x 32 of x per block into one tile, its columns into the rows of another, which is a box of y
// New        over tma_tile_scale_f16: the box of y is another than the box of x. Shared memory has bank conflicts
// Bound      wavefronts of shared memory
#include "kata.cuh"
#include "kata_tma.cuh"
#include <cstdint>
#include <cuda.h>

// From kata_tma.cuh:
using kata::matrix_map, kata::mbarrier_init, kata::expect, kata::wait, kata::load_box, kata::store_box,
    kata::commit_stores, kata::wait_read, kata::fence_proxy;

constexpr int TILE = 32;  // rows and columns of a box
constexpr int TILE_BYTES = TILE * TILE * sizeof(float);
constexpr int ROWS = 2;  // of the tile that the block moves at a time
constexpr int THREADS = TILE * ROWS;

__global__ void __launch_bounds__(THREADS) tma_transpose_f32_kernel(
    const __grid_constant__ CUtensorMap x_map,  // [M, N]
    const __grid_constant__ CUtensorMap y_map,  // [N, M]
    int tiles_m) {
    alignas(128) __shared__ float x_smem[TILE][TILE];
    alignas(128) __shared__ float y_smem[TILE][TILE];
    __shared__ uint64_t full;
    // Blocks that start one after the other write adjacent pieces of the same rows of y.
    const int row = blockIdx.x % tiles_m * TILE;  // of x
    const int col = blockIdx.x / tiles_m * TILE;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        expect(&full, TILE_BYTES);
        load_box(x_smem, &x_map, col, row, &full);
    }
    __syncthreads();
    wait(&full, 0);
    // TODO(1): Transpose x_smem into y_smem. A warp writes a row of y_smem at a time, 32 banks. (~4 lines)
    const int tx = threadIdx.x % TILE;
    const int ty = threadIdx.x / TILE;
#pragma unroll
    for (int i = ty; i < TILE; i += ROWS) y_smem[i][tx] = x_smem[tx][i];
    // END TODO(1)
    fence_proxy();
    __syncthreads();
    // TODO(2): Store the tile to its place in y, where rows and columns have swapped. (~5 lines)
    if (threadIdx.x == 0) {
        store_box(&y_map, row, col, y_smem);
        commit_stores();
        wait_read<0>();
    }
    // END TODO(2)
}

KATA_EXPORT void tma_transpose_f32(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles_n = (N - 1) / TILE + 1;
    const CUtensorMap x_map = matrix_map(x, M, N, TILE, TILE);
    const CUtensorMap y_map = matrix_map(y, N, M, TILE, TILE);
    tma_transpose_f32_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(x_map, y_map, tiles_m);
}
