// hgemm_t_8x8_sliced_k_f16x8_pack_bcf_dbuf: C = A @ B in half precision, the next slice is loaded while this one is
//            used
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, any M; N, K multiples
//            of 8
// Technique  128x128x8 tiles, two of each in shared memory; the next one waits in registers while this one is
//            multiplied
// New        over hgemm_t_8x8_sliced_k_f16x8_pack_bcf: loads overlap with products, and one barrier per slice instead
//            of two
// Bound      instructions: half of the threads have no pack of a slice to load, and there is a barrier every eight k
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 8;
constexpr int THREAD_M = 8;
constexpr int THREAD_N = 8;
constexpr int VEC = 8;  // halves in a pack of 16 bytes; a thread stages at most one of A and one of B
constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
static_assert(BLOCK_M * BLOCK_K <= THREADS * VEC && BLOCK_K * BLOCK_N <= THREADS * VEC, "a pack per thread at most");
static_assert(THREAD_M == VEC && THREAD_N == VEC, "a row and a column of a thread's tile are one pack");

// global -> register: this thread's pack of the tile of X, a matrix of rows x cols, that begins at (off_row, off_col).
// Elements outside X count as 0. A pack is wholly inside or wholly outside: cols is a multiple of 8.
template <int ROWS, int COLS>
__device__ inline uint4 load_pack(const half* X, int64_t off_row, int64_t off_col, int rows, int cols) {
    const int i = threadIdx.x * VEC;
    const int64_t row = off_row + i / COLS;
    const int64_t col = off_col + i % COLS;
    uint4 pack = {};
    if (i < ROWS * COLS && row < rows && col < cols) pack = *reinterpret_cast<const uint4*>(&X[row * cols + col]);
    return pack;
}

// register -> shared: the same pack into its place in the tile.
template <int ROWS, int COLS>
__device__ inline void store_pack(half (*X_smem)[COLS], uint4 pack) {
    const int i = threadIdx.x * VEC;
    if (i < ROWS * COLS) *reinterpret_cast<uint4*>(&X_smem[i / COLS][i % COLS]) = pack;
}

// register -> shared: the same pack into its place in the transposed tile.
template <int ROWS, int COLS>
__device__ inline void store_pack_transposed(half (*X_smem)[ROWS], uint4 pack) {
    const int i = threadIdx.x * VEC;
    // Lanes hold adjacent rows of X, one pack each: their halves lie side by side.
#pragma unroll
    for (int j = 0; j < VEC; ++j)
        if (i < ROWS * COLS) X_smem[i % COLS + j][i / COLS] = reinterpret_cast<const half*>(&pack)[j];
}

__global__ void __launch_bounds__(THREADS) hgemm_t_8x8_sliced_k_f16x8_pack_bcf_dbuf_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ B,  // [K, N]
    half* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(16) __shared__ half A_smem[2][BLOCK_K][BLOCK_M];  // transposed
    alignas(16) __shared__ half B_smem[2][BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int thread_m = threadIdx.x / (BLOCK_N / THREAD_N) * THREAD_M;  // this thread's tile within the block's
    const int thread_n = threadIdx.x % (BLOCK_N / THREAD_N) * THREAD_N;
    alignas(16) half2 C_rmem[THREAD_M][THREAD_N / 2] = {};
    store_pack_transposed<BLOCK_M, BLOCK_K>(A_smem[0], load_pack<BLOCK_M, BLOCK_K>(A, off_m, 0, M, K));
    store_pack<BLOCK_K, BLOCK_N>(B_smem[0], load_pack<BLOCK_K, BLOCK_N>(B, 0, off_n, K, N));
    // A thread reads rows and columns that others staged, so all of them must have written.
    __syncthreads();
    int stage = 0;
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K, stage = 1 - stage) {
        // TODO(1): global -> registers: start to load the next slice's packs before this slice is multiplied. After the
        //   last slice they are zeros. (~2 lines)
        // END TODO(1)
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            alignas(16) half A_rmem[THREAD_M];
            alignas(16) half2 B_rmem[THREAD_N / 2];
            *reinterpret_cast<uint4*>(A_rmem) = *reinterpret_cast<const uint4*>(&A_smem[stage][k][thread_m]);
            *reinterpret_cast<uint4*>(B_rmem) = *reinterpret_cast<const uint4*>(&B_smem[stage][k][thread_n]);
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m)
#pragma unroll
                for (int n = 0; n < THREAD_N / 2; ++n)
                    C_rmem[m][n] = __hfma2(__half2half2(A_rmem[m]), B_rmem[n], C_rmem[m][n]);
        }
        // TODO(2): registers -> shared: store the next slice where no thread reads. One barrier makes it visible to
        //   all. (~3 lines)
        // END TODO(2)
    }
    const int64_t row = off_m + thread_m;
    const int64_t col = off_n + thread_n;
#pragma unroll
    for (int m = 0; m < THREAD_M; ++m)
        if (row + m < M && col < N)
            *reinterpret_cast<uint4*>(&C[(row + m) * N + col]) = *reinterpret_cast<const uint4*>(C_rmem[m]);
}

KATA_EXPORT void hgemm_t_8x8_sliced_k_f16x8_pack_bcf_dbuf(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_t_8x8_sliced_k_f16x8_pack_bcf_dbuf_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
