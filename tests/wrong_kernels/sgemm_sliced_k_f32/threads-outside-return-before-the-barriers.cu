// Wrong: threads outside C leave before the loop, though the others wait for them and need what they would have staged
// Kata: sgemm_sliced_k_f32
// Sim: deadlock
// Gpu: pass | wrong answer: threads that exit count as arrived, and what nobody staged is anything
// Line: // BUG
// Sizes: M=1, N=1, K=1
#include "kata.cuh"
#include <cstdint>

constexpr int BLOCK_M = 32;
constexpr int BLOCK_N = 32;
constexpr int BLOCK_K = 32;
constexpr int THREADS = BLOCK_M * BLOCK_N;  // one per element of the tile of C
static_assert(BLOCK_M == BLOCK_K && BLOCK_N == BLOCK_K, "each thread stages one element of A's tile and one of B's");

__global__ void __launch_bounds__(THREADS) sgemm_sliced_k_f32_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    __shared__ float A_smem[BLOCK_M][BLOCK_K];
    __shared__ float B_smem[BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C; blocks go along the rows of tiles. Offsets into a matrix are 64-bit:
    // M, N and K fit int, their products need not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const int64_t row = off_m + ty;
    const int64_t col = off_n + tx;
    float sum = 0.0f;
    if (row >= M || col >= N) return;
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        A_smem[ty][tx] = row < M && off_k + tx < K ? A[row * K + off_k + tx] : 0.0f;
        B_smem[ty][tx] = off_k + ty < K && col < N ? B[(off_k + ty) * N + col] : 0.0f;
        // A thread reads a row and a column that 62 others staged: all of them must be done writing.
        __syncthreads();  // BUG
                          // Of a warp, A_smem is one word for all lanes (broadcast), B_smem 32 words in 32 banks.
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) sum += A_smem[ty][k] * B_smem[k][tx];
        // The next turn overwrites both tiles: all threads must be done reading.
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}

KATA_EXPORT void sgemm_sliced_k_f32(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    // One dimension of blocks, since y and z of a grid end at 65535: too few for a tall enough C. The count fits int:
    // 2^31 tiles would be a C of terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const dim3 threads(BLOCK_N, BLOCK_M);
    sgemm_sliced_k_f32_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(A, B, C, M, N, K);
}
