// Wrong: threads past the right edge of x move elements too, those of the next row
// Kata: mat_trans_f32_col2row2d
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: M=1, N=1
#include "kata.cuh"
#include <cstdint>

constexpr int BLOCK_M = 16;
constexpr int BLOCK_N = 16;
constexpr int THREADS = BLOCK_M * BLOCK_N;  // one per element of the tile

__global__ void __launch_bounds__(THREADS) mat_trans_f32_col2row2d_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    // This block's BLOCK_M x BLOCK_N tile of x; blocks go along the rows of tiles. Offsets into a matrix are 64-bit:
    // M and N fit int, their product need not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int64_t row = off_m + threadIdx.y;
    const int64_t col = off_n + threadIdx.x;
    if (row < M) y[col * M + row] = x[row * N + col];  // BUG
}

KATA_EXPORT void mat_trans_f32_col2row2d(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // One dimension of blocks, since y and z of a grid end at 65535: too few for a tall enough x. The count fits int:
    // 2^31 tiles would be an x of terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const dim3 threads(BLOCK_N, BLOCK_M);
    mat_trans_f32_col2row2d_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
