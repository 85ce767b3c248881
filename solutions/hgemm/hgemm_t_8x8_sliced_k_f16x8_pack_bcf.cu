// hgemm_t_8x8_sliced_k_f16x8_pack_bcf: C = A @ B in half precision, A's tile stored transposed
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, any M; N, K multiples
//            of 8
// Technique  128x128x8 tiles, 8 x 8 elements of C per thread; per k one 128-bit load of A_smem and one of B_smem
// New        over hgemm_t_8x8_sliced_k_f16x8_pack: two loads from shared memory per k instead of twelve, without bank
//            conflicts
// Bound      latency: no thread multiplies while the next slice of K is in flight
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
    // TODO(1): Store the VEC halves to VEC rows of X_smem. The stores of a warp must have no bank conflicts. (~5 lines)
    const int i = threadIdx.x * VEC;
    // Lanes hold adjacent rows of X, one pack each: their halves lie side by side.
#pragma unroll
    for (int j = 0; j < VEC; ++j)
        if (i < ROWS * COLS) X_smem[i % COLS + j][i / COLS] = reinterpret_cast<const half*>(&pack)[j];
    // END TODO(1)
}

__global__ void __launch_bounds__(THREADS) hgemm_t_8x8_sliced_k_f16x8_pack_bcf_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ B,  // [K, N]
    half* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(16) __shared__ half A_smem[BLOCK_K][BLOCK_M];  // transposed
    alignas(16) __shared__ half B_smem[BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int thread_m = threadIdx.x / (BLOCK_N / THREAD_N) * THREAD_M;  // this thread's tile within the block's
    const int thread_n = threadIdx.x % (BLOCK_N / THREAD_N) * THREAD_N;
    alignas(16) half2 C_rmem[THREAD_M][THREAD_N / 2] = {};
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        store_pack_transposed<BLOCK_M, BLOCK_K>(A_smem, load_pack<BLOCK_M, BLOCK_K>(A, off_m, off_k, M, K));
        store_pack<BLOCK_K, BLOCK_N>(B_smem, load_pack<BLOCK_K, BLOCK_N>(B, off_k, off_n, K, N));
        // A thread reads rows and columns that others staged, so all of them must have written.
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            alignas(16) half A_rmem[THREAD_M];
            alignas(16) half2 B_rmem[THREAD_N / 2];
            // TODO(2): shared -> registers: load this thread's THREAD_M elements of A and its THREAD_N of B, with one
            //   128-bit load each. (~2 lines)
            *reinterpret_cast<uint4*>(A_rmem) = *reinterpret_cast<const uint4*>(&A_smem[k][thread_m]);
            *reinterpret_cast<uint4*>(B_rmem) = *reinterpret_cast<const uint4*>(&B_smem[k][thread_n]);
            // END TODO(2)
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m)
#pragma unroll
                for (int n = 0; n < THREAD_N / 2; ++n)
                    C_rmem[m][n] = __hfma2(__half2half2(A_rmem[m]), B_rmem[n], C_rmem[m][n]);
        }
        // The next iteration overwrites both tiles, so all threads must have read them.
        __syncthreads();
    }
    const int64_t row = off_m + thread_m;
    const int64_t col = off_n + thread_n;
#pragma unroll
    for (int m = 0; m < THREAD_M; ++m)
        if (row + m < M && col < N)
            *reinterpret_cast<uint4*>(&C[(row + m) * N + col]) = *reinterpret_cast<const uint4*>(C_rmem[m]);
}

KATA_EXPORT void hgemm_t_8x8_sliced_k_f16x8_pack_bcf(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_t_8x8_sliced_k_f16x8_pack_bcf_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
