// sgemm_naive_f32: C = A @ B, one element of C per thread, all operands from global memory
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f32, row-major, contiguous, 16-byte aligned bases, any M, N, K >= 1
// Technique  a thread walks along one row of A and down one column of B
// New        over elementwise_f32: two output dimensions, and many threads read each input element
// Bound      memory instructions: two loads per multiply-add
#include "kata.cuh"
#include <cstdint>

constexpr int BLOCK_M = 32;
constexpr int BLOCK_N = 32;
constexpr int THREADS = BLOCK_M * BLOCK_N;  // one per element of the tile of C

__global__ void __launch_bounds__(THREADS) sgemm_naive_f32_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    // TODO(1): Give each thread its own row and column of C within the tile. The 32 threads of a warp (consecutive
    //   threadIdx.x) must load B and store C coalesced, and load A as one broadcast. (~2 lines)
    const int64_t row = off_m + threadIdx.y;
    const int64_t col = off_n + threadIdx.x;
    // END TODO(1)
    // TODO(2): Sum A[row, k] * B[k, col] over all k in a register, then store it once. Threads outside C, right of or
    //   below a ragged edge, must not load or store. (~5 lines)
    if (row < M && col < N) {
        float sum = 0.0f;
        for (int64_t k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
        C[row * N + col] = sum;
    }
    // END TODO(2)
}

KATA_EXPORT void sgemm_naive_f32(const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const dim3 threads(BLOCK_N, BLOCK_M);
    sgemm_naive_f32_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(A, B, C, M, N, K);
}
