// Wrong: a slice is staged over values that other threads still multiply
// Kata: hgemm_sliced_k_f16
// Sim: race
// Gpu: pass | wrong answer | race: a warp must run ahead of another for it to show
// Line: // BUG
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int BLOCK_M = 32;
constexpr int BLOCK_N = 32;
constexpr int BLOCK_K = 32;
constexpr int THREADS = BLOCK_M * BLOCK_N;  // one per element of the tile of C
static_assert(BLOCK_M * BLOCK_K % THREADS == 0 && BLOCK_K * BLOCK_N % THREADS == 0, "all threads stage equally much");

// global -> shared: the tile of X, a matrix of rows x cols, that begins at (off_row, off_col).
template <int ROWS, int COLS>
__device__ inline void load_tile(
    half (*X_smem)[COLS], const half* X, int64_t off_row, int64_t off_col, int rows, int cols) {
#pragma unroll
    for (int first = 0; first < ROWS * COLS; first += THREADS) {
        const int i = first + threadIdx.x;
        const int64_t row = off_row + i / COLS;
        const int64_t col = off_col + i % COLS;
        X_smem[i / COLS][i % COLS] = row < rows && col < cols ? X[row * cols + col] : __float2half(0.0f);  // BUG
    }
}

__global__ void __launch_bounds__(THREADS) hgemm_sliced_k_f16_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ B,  // [K, N]
    half* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    __shared__ alignas(16) half A_smem[BLOCK_M][BLOCK_K];
    __shared__ alignas(16) half B_smem[BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C; blocks go along the rows of tiles. Offsets into a matrix are 64-bit:
    // M, N and K fit int, their products need not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int thread_m = threadIdx.x / BLOCK_N;  // this thread's element within the tile
    const int thread_n = threadIdx.x % BLOCK_N;
    half sum = __float2half(0.0f);
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        load_tile<BLOCK_M, BLOCK_K>(A_smem, A, off_m, off_k, M, K);
        load_tile<BLOCK_K, BLOCK_N>(B_smem, B, off_k, off_n, K, N);
        // A thread reads a row and a column that 62 others staged: all of them must be done writing.
        __syncthreads();
        // Of a warp, A_smem is one half for all lanes (broadcast), B_smem 32 halves in 16 banks, two of each word.
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) sum = __hfma(A_smem[thread_m][k], B_smem[k][thread_n], sum);  // BUG
    }
    const int64_t row = off_m + thread_m;
    const int64_t col = off_n + thread_n;
    if (row < M && col < N) C[row * N + col] = sum;
}

KATA_EXPORT void hgemm_sliced_k_f16(const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One dimension of blocks, since y and z of a grid end at 65535: too few for a tall enough C. The count fits int:
    // 2^31 tiles would be a C of terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_sliced_k_f16_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
