// Wrong: the vector to store is gathered along a row of x
// Kata: mat_trans_f32x4_row2col2d
// Sim: out of bounds | wrong answer: the last elements of a row have no right neighbours
// Gpu: wrong answer
// Sizes: M=4
#include "kata.cuh"
#include <cstdint>

constexpr int VEC = 4;  // elements per thread: float4 is 16 bytes
constexpr int BLOCK_M = 16 * VEC;
constexpr int BLOCK_N = 16;
constexpr int THREADS = BLOCK_M * BLOCK_N / VEC;

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_row2col2d_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    // This block's BLOCK_M x BLOCK_N tile of x; blocks go along the rows of tiles. Offsets into a matrix are 64-bit:
    // M and N fit int, their product need not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int64_t row = off_m + threadIdx.x * VEC;
    const int64_t col = off_n + threadIdx.y;
    if (row >= M || col >= N) return;
    if (M % VEC == 0) {
        float4 y4;
        y4.x = x[(row + 0) * N + col];
        y4.y = x[row * N + col + 1];
        y4.z = x[row * N + col + 2];
        y4.w = x[row * N + col + 3];
        reinterpret_cast<float4*>(y + col * M)[row / VEC] = y4;
    }
    if (M % VEC != 0) {
        for (int64_t r = row; r < M && r < row + VEC; ++r) y[col * M + r] = x[r * N + col];
    }
}

KATA_EXPORT void mat_trans_f32x4_row2col2d(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // One dimension of blocks, since y and z of a grid end at 65535: too few for a tall enough x. The count fits int:
    // 2^31 tiles would be an x of terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const dim3 threads(BLOCK_M / VEC, BLOCK_N);
    mat_trans_f32x4_row2col2d_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
