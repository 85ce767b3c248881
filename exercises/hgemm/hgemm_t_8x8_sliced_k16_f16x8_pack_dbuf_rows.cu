// hgemm_t_8x8_sliced_k16_f16x8_pack_dbuf_rows: C = A @ B in half precision, A's rows stay rows
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, any M; N, K multiples
//            of 8
// Technique  128x128x16 tiles, two of each in shared memory; a thread loads eight k of a row of A at once
// New        over hgemm_t_8x8_sliced_k16_f16x8_pack_dbuf: no transposition; the rows of a thread's tile are 16 apart,
//            so that loads have no bank conflicts
// Bound      instructions: packs pass through registers and ordinary stores to reach shared memory
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 16;
constexpr int THREAD_M = 8;
constexpr int THREAD_N = 8;
constexpr int STEP_M = BLOCK_M / THREAD_M;
constexpr int VEC = 8;  // halves in a pack of 16 bytes; a thread stages one of A and one of B
constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
static_assert(BLOCK_M * BLOCK_K == THREADS * VEC && BLOCK_K * BLOCK_N == THREADS * VEC, "one pack each");
static_assert(THREAD_M == VEC && THREAD_N == VEC, "a row and a column of a thread's tile are one pack");

// global -> register: this thread's pack of the tile of X, a matrix of rows x cols, that begins at (off_row, off_col).
// Elements outside X count as 0. A pack is wholly inside or wholly outside: cols is a multiple of 8.
template <int ROWS, int COLS>
__device__ inline uint4 load_pack(const half* X, int64_t off_row, int64_t off_col, int rows, int cols) {
    const int i = threadIdx.x * VEC;
    const int64_t row = off_row + i / COLS;
    const int64_t col = off_col + i % COLS;
    uint4 pack = {};
    if (row < rows && col < cols) pack = *reinterpret_cast<const uint4*>(&X[row * cols + col]);
    return pack;
}

// register -> shared: the same pack into its place in the tile.
template <int ROWS, int COLS>
__device__ inline void store_pack(half (*X_smem)[COLS], uint4 pack) {
    const int i = threadIdx.x * VEC;
    *reinterpret_cast<uint4*>(&X_smem[i / COLS][i % COLS]) = pack;
}

__global__ void __launch_bounds__(THREADS) hgemm_t_8x8_sliced_k16_f16x8_pack_dbuf_rows_kernel(
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
    store_pack<BLOCK_M, BLOCK_K>(A_smem[0], load_pack<BLOCK_M, BLOCK_K>(A, off_m, 0, M, K));
    store_pack<BLOCK_K, BLOCK_N>(B_smem[0], load_pack<BLOCK_K, BLOCK_N>(B, 0, off_n, K, N));
    // A thread reads rows and columns that others staged, so all of them must have written.
    __syncthreads();
    int stage = 0;
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K, stage = 1 - stage) {
        const uint4 A_pack = load_pack<BLOCK_M, BLOCK_K>(A, off_m, off_k + BLOCK_K, M, K);
        const uint4 B_pack = load_pack<BLOCK_K, BLOCK_N>(B, off_k + BLOCK_K, off_n, K, N);
#pragma unroll
        for (int k = 0; k < BLOCK_K; k += VEC) {
            // TODO(1): shared -> registers: load VEC elements of each of this thread's rows of A, with one load per
            //   row. For each k among them, load this thread's elements of B with one load, and add the products.
            //   (~12 lines)
            // END TODO(1)
        }
        store_pack<BLOCK_M, BLOCK_K>(A_smem[1 - stage], A_pack);
        store_pack<BLOCK_K, BLOCK_N>(B_smem[1 - stage], B_pack);
        // All threads have written the next slice and have read this one, which the next iteration overwrites.
        __syncthreads();
    }
    const int64_t row = off_m + thread_m;
    const int64_t col = off_n + thread_n;
#pragma unroll
    for (int m = 0; m < THREAD_M; ++m)
        if (row + m * STEP_M < M && col < N)
            *reinterpret_cast<uint4*>(&C[(row + m * STEP_M) * N + col]) = *reinterpret_cast<const uint4*>(C_rmem[m]);
}

KATA_EXPORT void hgemm_t_8x8_sliced_k16_f16x8_pack_dbuf_rows(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_t_8x8_sliced_k16_f16x8_pack_dbuf_rows_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
