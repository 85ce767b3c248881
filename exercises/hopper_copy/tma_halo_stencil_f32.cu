// tma_halo_stencil_f32: y[i, j] = x[i-1, j] + x[i+1, j] + x[i, j-1] + x[i, j+1] - 4 x[i, j], 0 outside of x
//
// Shapes     x, y: [M, N] f32, row-major, contiguous, 16-byte aligned bases, any M >= 1, N a multiple of 4
// Technique  a box of x with a halo per block, which begins outside of x at the upper and left edge; a thread goes down
//            a column with three values in registers; the result as a box of y
// New        over tma_tile_scale_f16: the copy engine fills what is outside of x with zeros. No thread asks for an edge
// Bound      memory bandwidth
#include "kata.cuh"
#include "kata_tma.cuh"
#include <cstdint>
#include <cuda.h>

// From kata_tma.cuh:
using kata::matrix_map, kata::mbarrier_init, kata::expect, kata::wait, kata::load_box, kata::store_box,
    kata::commit_stores, kata::wait_read, kata::fence_proxy;

constexpr int TILE_ROWS = 32;  // of y, per block
constexpr int TILE_COLS = 128;
constexpr int HALO_ROWS = 1;  // above and below
constexpr int HALO_COLS = 4;  // left and right: one is needed, but a box must begin on 16 bytes in its row
constexpr int BOX_ROWS = TILE_ROWS + 2 * HALO_ROWS;
constexpr int BOX_COLS = TILE_COLS + 2 * HALO_COLS;
constexpr int BOX_BYTES = BOX_ROWS * BOX_COLS * sizeof(float);
constexpr int THREADS = 256;
constexpr int THREAD_ROWS = TILE_ROWS * TILE_COLS / THREADS;  // of one column, per thread

__global__ void __launch_bounds__(THREADS) tma_halo_stencil_f32_kernel(
    const __grid_constant__ CUtensorMap x_map,  // [M, N]
    const __grid_constant__ CUtensorMap y_map,  // [M, N]
    int tiles_n) {
    alignas(128) __shared__ float x_smem[BOX_ROWS][BOX_COLS];
    alignas(128) __shared__ float y_smem[TILE_ROWS][TILE_COLS];
    __shared__ uint64_t full;
    const int row = blockIdx.x / tiles_n * TILE_ROWS;
    const int col = blockIdx.x % tiles_n * TILE_COLS;
    // TODO(1): Load the box whose element (HALO_ROWS, HALO_COLS) is x[row, col]. Every thread waits for it. (~7 lines)
    // END TODO(1)
    // TODO(2): Write this thread's THREAD_ROWS elements of one column of y_smem. Adjacent lanes have adjacent columns.
    //   The thread reads each element of its own column of x_smem once. (~11 lines)
    // END TODO(2)
    fence_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
        store_box(&y_map, col, row, y_smem);
        commit_stores();
        wait_read<0>();
    }
}

KATA_EXPORT void tma_halo_stencil_f32(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int tiles_m = (M - 1) / TILE_ROWS + 1;
    const int tiles_n = (N - 1) / TILE_COLS + 1;
    const CUtensorMap x_map = matrix_map(x, M, N, BOX_ROWS, BOX_COLS);
    const CUtensorMap y_map = matrix_map(y, M, N, TILE_ROWS, TILE_COLS);
    tma_halo_stencil_f32_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(x_map, y_map, tiles_n);
}
