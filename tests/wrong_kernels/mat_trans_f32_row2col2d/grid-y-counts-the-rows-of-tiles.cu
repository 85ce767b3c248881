// Wrong: the tiles are counted along x and y of the grid, and y ends at 65535: too few for a tall x
// Kata: mat_trans_f32_row2col2d
// Sim: not shown: shapes that tall are left to a GPU
// Gpu: launch failed
#include "kata.cuh"
#include <cstdint>

constexpr int BLOCK_M = 16;
constexpr int BLOCK_N = 16;
constexpr int THREADS = BLOCK_M * BLOCK_N;  // one per element of the tile

__global__ void __launch_bounds__(THREADS) mat_trans_f32_row2col2d_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    const int64_t off_m = static_cast<int64_t>(blockIdx.y) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x) * BLOCK_N;
    const int64_t row = off_m + threadIdx.x;
    const int64_t col = off_n + threadIdx.y;
    if (row < M && col < N) y[col * M + row] = x[row * N + col];
}

KATA_EXPORT void mat_trans_f32_row2col2d(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const dim3 tiles((N - 1) / BLOCK_N + 1, (M - 1) / BLOCK_M + 1);
    const dim3 threads(BLOCK_M, BLOCK_N);
    mat_trans_f32_row2col2d_kernel<<<tiles, threads, 0, stream>>>(x, y, M, N);
}
