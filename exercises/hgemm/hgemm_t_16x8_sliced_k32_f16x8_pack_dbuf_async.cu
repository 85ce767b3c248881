// hgemm_t_16x8_sliced_k32_f16x8_pack_dbuf_async: C = A @ B in half precision, 16 x 8 elements of C per thread
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, any M; N, K multiples
//            of 8
// Technique  128x128x32 tiles, two of each in shared memory, filled in turn by cp.async; 128 threads
// New        over hgemm_t_8x8_sliced_k16_f16x8_pack_dbuf_async: a pack of B is used 16 times instead of 8, and there
//            are half as many barriers
// Bound      the rate of half2 multiply-adds on the CUDA cores: nine of ten instructions in the loop
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 32;
constexpr int THREAD_M = 16;
constexpr int THREAD_N = 8;
constexpr int STEP_M = BLOCK_M / THREAD_M;
constexpr int VEC = 8;  // halves in a pack of 16 bytes, the unit of a copy
constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
static_assert(BLOCK_M * BLOCK_K % (THREADS * VEC) == 0, "all threads copy equally much of A");
static_assert(BLOCK_K * BLOCK_N % (THREADS * VEC) == 0, "all threads copy equally much of B");
static_assert(THREAD_N == VEC, "a row of a thread's tile is one pack");

// global -> shared, 16 bytes, without registers, bypassing L1: cp.async of the PTX ISA, 9.7.9.25.3.1. If inside is
// false, the source size is 0: it reads nothing and writes zeros.
__device__ inline void copy_async(half* X_smem, const half* X, bool inside) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(X_smem));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(X), "r"(inside ? 16 : 0) : "memory");
}

// Waits until all copies of this thread have arrived (9.7.9.25.3.3).
__device__ inline void wait_all() {
    asm volatile("cp.async.wait_all;\n" ::: "memory");
}

// global -> shared: starts to copy the tile of X, a matrix of rows x cols, that begins at (off_row, off_col). Elements
// outside X count as 0. A pack is wholly inside or wholly outside: cols is a multiple of 8.
template <int ROWS, int COLS>
__device__ inline void load_tile(
    half (*X_smem)[COLS], const half* X, int64_t off_row, int64_t off_col, int rows, int cols) {
#pragma unroll
    for (int first = 0; first < ROWS * COLS; first += THREADS * VEC) {
        const int i = first + threadIdx.x * VEC;
        const int64_t row = off_row + i / COLS;
        const int64_t col = off_col + i % COLS;
        copy_async(&X_smem[i / COLS][i % COLS], &X[row * cols + col], row < rows && col < cols);
    }
}

__global__ void __launch_bounds__(THREADS) hgemm_t_16x8_sliced_k32_f16x8_pack_dbuf_async_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ B,  // [K, N]
    half* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(16) __shared__ half A_smem[2][BLOCK_M][BLOCK_K];
    alignas(16) __shared__ half B_smem[2][BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    // This thread's rows are thread_m and every STEP_M-th row from there. The two rows that a warp reads at the same
    // time are then adjacent and in different banks.
    const int thread_m = threadIdx.x / (BLOCK_N / THREAD_N);
    const int thread_n = threadIdx.x % (BLOCK_N / THREAD_N) * THREAD_N;
    alignas(16) half2 C_rmem[THREAD_M][THREAD_N / 2] = {};
    load_tile<BLOCK_M, BLOCK_K>(A_smem[0], A, off_m, 0, M, K);
    load_tile<BLOCK_K, BLOCK_N>(B_smem[0], B, 0, off_n, K, N);
    int stage = 0;
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K, stage = 1 - stage) {
        wait_all();
        // This slice has arrived for this thread. After the barrier it has for all, and all are done with the other
        // stage.
        __syncthreads();
        load_tile<BLOCK_M, BLOCK_K>(A_smem[1 - stage], A, off_m, off_k + BLOCK_K, M, K);
        load_tile<BLOCK_K, BLOCK_N>(B_smem[1 - stage], B, off_k + BLOCK_K, off_n, K, N);
        // TODO(1): shared -> registers: add all products of this slice, for 16 rows of A per thread. (~15 lines)
        // END TODO(1)
    }
    const int64_t row = off_m + thread_m;
    const int64_t col = off_n + thread_n;
#pragma unroll
    for (int m = 0; m < THREAD_M; ++m)
        if (row + m * STEP_M < M && col < N)
            *reinterpret_cast<uint4*>(&C[(row + m * STEP_M) * N + col]) = *reinterpret_cast<const uint4*>(C_rmem[m]);
}

KATA_EXPORT void hgemm_t_16x8_sliced_k32_f16x8_pack_dbuf_async(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_t_16x8_sliced_k32_f16x8_pack_dbuf_async_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
