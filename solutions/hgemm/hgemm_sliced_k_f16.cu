// hgemm_sliced_k_f16: C = A @ B, one element of C per thread, operands staged in shared memory slice by slice of K
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, any M, N, K >= 1
// Technique  32x32x32 tiles: a block loads a slice of A and of B once, and 32 threads use every element of it
// New        over hgemm_naive_f16: shared memory, two barriers per slice; 32 times fewer global loads
// Bound      shared memory: still about two loads per multiply-add, but from nearer memory
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
    // TODO(1): Stage the tile with the THREADS threads of the block. Adjacent threads stage adjacent elements. Elements
    //   outside X count as 0 and are not loaded. (~6 lines)
#pragma unroll
    for (int first = 0; first < ROWS * COLS; first += THREADS) {
        const int i = first + threadIdx.x;
        const int64_t row = off_row + i / COLS;
        const int64_t col = off_col + i % COLS;
        X_smem[i / COLS][i % COLS] = row < rows && col < cols ? X[row * cols + col] : __float2half(0.0f);
    }
    // END TODO(1)
}

__global__ void __launch_bounds__(THREADS) hgemm_sliced_k_f16_kernel(
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
    const int thread_m = threadIdx.x / BLOCK_N;  // this thread's element within the tile
    const int thread_n = threadIdx.x % BLOCK_N;
    half sum = __float2half(0.0f);
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        // TODO(2): global -> shared: stage A's slice and B's. No thread may read an incomplete tile. (~3 lines)
        load_tile<BLOCK_M, BLOCK_K>(A_smem, A, off_m, off_k, M, K);
        load_tile<BLOCK_K, BLOCK_N>(B_smem, B, off_k, off_n, K, N);
        // A thread reads a row and a column that 62 others staged, so all of them must have written.
        __syncthreads();
        // END TODO(2)
        // TODO(3): shared -> register: add this slice's BLOCK_K products to sum, without bank conflicts. No thread may
        //   stage the next slice over values that another still needs. (~3 lines)
        // For a warp, A_smem is one half for all lanes (broadcast), B_smem 32 halves in 16 banks, two per word.
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) sum = __hfma(A_smem[thread_m][k], B_smem[k][thread_n], sum);
        // The next iteration overwrites both tiles, so all threads must have read them.
        __syncthreads();
        // END TODO(3)
    }
    const int64_t row = off_m + thread_m;
    const int64_t col = off_n + thread_n;
    // TODO(4): Store each element of C once. Threads outside C helped to stage tiles, but store nothing. (~1 line)
    if (row < M && col < N) C[row * N + col] = sum;
    // END TODO(4)
}

KATA_EXPORT void hgemm_sliced_k_f16(const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_sliced_k_f16_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
