// Wrong: the diagonals are those of a square of tiles: the rest of a longer x has no block
// Kata: mat_trans_f32_diagonal2d
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: M=1, N=17
// Says: never written
#include "kata.cuh"
#include <cstdint>

constexpr int BLOCK_M = 16;
constexpr int BLOCK_N = 16;
constexpr int THREADS = BLOCK_M * BLOCK_N;  // one per element of the tile

__global__ void __launch_bounds__(THREADS) mat_trans_f32_diagonal2d_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    int tile_m = 0;
    int tile_n = 0;
    // tiles_m blocks have every row of tiles once; the tiles_m after them do it again, one tile further to the right.
    tile_m = blockIdx.x % tiles_n;
    tile_n = (blockIdx.x / tiles_n + tile_m) % tiles_n;
    // Offsets into a matrix are 64-bit: M and N fit int, their product need not.
    const int64_t off_m = static_cast<int64_t>(tile_m) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(tile_n) * BLOCK_N;
    const int64_t row = off_m + threadIdx.x;
    const int64_t col = off_n + threadIdx.y;
    if (row < M && col < N) y[col * M + row] = x[row * N + col];
}

KATA_EXPORT void mat_trans_f32_diagonal2d(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // One dimension of blocks, since y and z of a grid end at 65535: too few for a tall enough x. The count fits int:
    // 2^31 tiles would be an x of terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const dim3 threads(BLOCK_M, BLOCK_N);
    mat_trans_f32_diagonal2d_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
