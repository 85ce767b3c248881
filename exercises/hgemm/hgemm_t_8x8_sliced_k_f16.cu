// hgemm_t_8x8_sliced_k_f16: C = A @ B in half precision, 8 x 8 elements of C per thread
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, any M, N, K >= 1
// Technique  128x128x8 tiles; a thread holds 64 sums, and loads 8 elements of A and 8 of B for 64 multiply-adds
// New        over hgemm_sliced_k_f16: a quarter of a load from shared memory per multiply-add instead of two
// Bound      instructions: two-byte loads, and multiply-adds of one half in a register that could hold two
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 8;
constexpr int THREAD_M = 8;
constexpr int THREAD_N = 8;
constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
static_assert(BLOCK_M * BLOCK_K % THREADS == 0 && BLOCK_K * BLOCK_N % THREADS == 0, "all threads stage equally much");

// global -> shared: the tile of X, a matrix of rows x cols, that begins at (off_row, off_col). Elements outside X count
// as 0.
template <int ROWS, int COLS>
__device__ inline void load_tile(
    half (*X_smem)[COLS], const half* X, int64_t off_row, int64_t off_col, int rows, int cols) {
#pragma unroll
    for (int first = 0; first < ROWS * COLS; first += THREADS) {
        const int i = first + threadIdx.x;
        const int64_t row = off_row + i / COLS;
        const int64_t col = off_col + i % COLS;
        X_smem[i / COLS][i % COLS] = row < rows && col < cols ? X[row * cols + col] : __float2half(0.0f);
    }
}

__global__ void __launch_bounds__(THREADS) hgemm_t_8x8_sliced_k_f16_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ B,  // [K, N]
    half* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(16) __shared__ half A_smem[BLOCK_M][BLOCK_K];
    alignas(16) __shared__ half B_smem[BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int thread_m = threadIdx.x / (BLOCK_N / THREAD_N) * THREAD_M;  // this thread's tile within the block's
    const int thread_n = threadIdx.x % (BLOCK_N / THREAD_N) * THREAD_N;
    half C_rmem[THREAD_M][THREAD_N] = {};
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        load_tile<BLOCK_M, BLOCK_K>(A_smem, A, off_m, off_k, M, K);
        load_tile<BLOCK_K, BLOCK_N>(B_smem, B, off_k, off_n, K, N);
        // A thread reads rows and columns that others staged, so all of them must have written.
        __syncthreads();
        // TODO(1): shared -> registers: add this slice's products to all of this thread's sums, in registers. Load each
        //   operand once per k and use it eight times. (~10 lines)
        // END TODO(1)
        // The next iteration overwrites both tiles, so all threads must have read them.
        __syncthreads();
    }
    const int64_t row = off_m + thread_m;
    const int64_t col = off_n + thread_n;
    // TODO(2): Store this thread's elements that are inside C. (~5 lines)
    // END TODO(2)
}

KATA_EXPORT void hgemm_t_8x8_sliced_k_f16(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_t_8x8_sliced_k_f16_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
