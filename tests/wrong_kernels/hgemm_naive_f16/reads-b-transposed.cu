// Wrong: B is read as if it were [N, K]
// Kata: hgemm_naive_f16
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int BLOCK_M = 32;
constexpr int BLOCK_N = 32;
constexpr int THREADS = BLOCK_M * BLOCK_N;  // one per element of the tile of C

__global__ void __launch_bounds__(THREADS) hgemm_naive_f16_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ B,  // [K, N]
    half* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    // This block's BLOCK_M x BLOCK_N tile of C; blocks go along the rows of tiles. Offsets into a matrix are 64-bit:
    // M, N and K fit int, their products need not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int64_t row = off_m + threadIdx.y;
    const int64_t col = off_n + threadIdx.x;
    if (row < M && col < N) {
        half sum = __float2half(0.0f);
        for (int64_t k = 0; k < K; ++k) sum = __hfma(A[row * K + k], B[col * K + k], sum);
        C[row * N + col] = sum;
    }
}

KATA_EXPORT void hgemm_naive_f16(const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One dimension of blocks, since y and z of a grid end at 65535: too few for a tall enough C. The count fits int:
    // 2^31 tiles would be a C of terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const dim3 threads(BLOCK_N, BLOCK_M);
    hgemm_naive_f16_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(A, B, C, M, N, K);
}
