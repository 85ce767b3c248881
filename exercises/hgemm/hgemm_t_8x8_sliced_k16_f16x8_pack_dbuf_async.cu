// hgemm_t_8x8_sliced_k16_f16x8_pack_dbuf_async: C = A @ B in half precision, slices copied without registers
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, any M; N, K multiples
//            of 8
// Technique  128x128x16 tiles, two of each in shared memory, filled in turn by cp.async
// New        over hgemm_t_8x8_sliced_k16_f16x8_pack_dbuf_rows: cp.async; copies need no load, register or store
// Bound      instructions: 32 loads from shared memory per 512 half2 multiply-adds
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 16;
constexpr int THREAD_M = 8;
constexpr int THREAD_N = 8;
constexpr int STEP_M = BLOCK_M / THREAD_M;
constexpr int VEC = 8;  // halves in a pack of 16 bytes, the unit of a copy
constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
static_assert(BLOCK_M * BLOCK_K == THREADS * VEC && BLOCK_K * BLOCK_N == THREADS * VEC, "one pack each");
static_assert(THREAD_M == VEC && THREAD_N == VEC, "a row and a column of a thread's tile are one pack");

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
    // TODO(1): Start to copy this thread's pack, or zeros where it is not inside X. (~4 lines)
    // END TODO(1)
}

__global__ void __launch_bounds__(THREADS) hgemm_t_8x8_sliced_k16_f16x8_pack_dbuf_async_kernel(
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
        // TODO(2): Make sure that this slice has arrived, for all threads. Then start to copy the next one into the
        //   other stage. After the last slice, copy zeros. (~4 lines)
        // END TODO(2)
#pragma unroll
        for (int k = 0; k < BLOCK_K; k += VEC) {
            alignas(16) half A_rmem[THREAD_M][VEC];
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m)
                *reinterpret_cast<uint4*>(A_rmem[m]) =
                    *reinterpret_cast<const uint4*>(&A_smem[stage][thread_m + m * STEP_M][k]);
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                alignas(16) half2 B_rmem[THREAD_N / 2];
                *reinterpret_cast<uint4*>(B_rmem) = *reinterpret_cast<const uint4*>(&B_smem[stage][k + j][thread_n]);
#pragma unroll
                for (int m = 0; m < THREAD_M; ++m)
#pragma unroll
                    for (int n = 0; n < THREAD_N / 2; ++n)
                        C_rmem[m][n] = __hfma2(__half2half2(A_rmem[m][j]), B_rmem[n], C_rmem[m][n]);
            }
        }
    }
    const int64_t row = off_m + thread_m;
    const int64_t col = off_n + thread_n;
#pragma unroll
    for (int m = 0; m < THREAD_M; ++m)
        if (row + m * STEP_M < M && col < N)
            *reinterpret_cast<uint4*>(&C[(row + m * STEP_M) * N + col]) = *reinterpret_cast<const uint4*>(C_rmem[m]);
}

KATA_EXPORT void hgemm_t_8x8_sliced_k16_f16x8_pack_dbuf_async(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_t_8x8_sliced_k16_f16x8_pack_dbuf_async_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
