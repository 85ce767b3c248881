// hgemm_t_8x8_sliced_k_f16x4_pack: C = A @ B in half precision, four halves per access
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, any M; N, K multiples
//            of 4
// Technique  128x128x8 tiles, 8 x 8 elements of C per thread; tiles are loaded and C is stored in packs of 8 bytes
// New        over hgemm_t_8x8_sliced_k_f16x4: half as many accesses to stage a tile and to store C
// Bound      shared memory: each half of a column of A_smem takes a load
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 8;
constexpr int THREAD_M = 8;
constexpr int THREAD_N = 8;
constexpr int VEC = 4;  // halves that a thread stages at a time
constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
static_assert(BLOCK_M * BLOCK_K == THREADS * VEC && BLOCK_K * BLOCK_N == THREADS * VEC, "four of each per thread");

// global -> shared: the tile of X, a matrix of rows x cols, that begins at (off_row, off_col). Elements outside X count
// as 0. Columns come in fours that are wholly inside or wholly outside: cols is a multiple of 4.
template <int ROWS, int COLS>
__device__ inline void load_tile(
    half (*X_smem)[COLS], const half* X, int64_t off_row, int64_t off_col, int rows, int cols) {
    const int i = threadIdx.x * VEC;
    const int64_t row = off_row + i / COLS;
    const int64_t col = off_col + i % COLS;
    const uint2* from = reinterpret_cast<const uint2*>(&X[row * cols + col]);
    const bool inside = row < rows && col < cols;
    // TODO(1): Move four halves at once: uint2 is 8 bytes. (~1 line)
    *reinterpret_cast<uint2*>(&X_smem[i / COLS][i % COLS]) = inside ? *from : uint2{};
    // END TODO(1)
}

__global__ void __launch_bounds__(THREADS) hgemm_t_8x8_sliced_k_f16x4_pack_kernel(
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
    alignas(8) half2 C_rmem[THREAD_M][THREAD_N / 2] = {};
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        load_tile<BLOCK_M, BLOCK_K>(A_smem, A, off_m, off_k, M, K);
        load_tile<BLOCK_K, BLOCK_N>(B_smem, B, off_k, off_n, K, N);
        // A thread reads rows and columns that others staged, so all of them must have written.
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            half2 A_rmem[THREAD_M];
            half2 B_rmem[THREAD_N / 2];
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m) A_rmem[m] = __half2half2(A_smem[thread_m + m][k]);
#pragma unroll
            for (int n = 0; n < THREAD_N / 2; ++n)
                B_rmem[n] = *reinterpret_cast<const half2*>(&B_smem[k][thread_n + 2 * n]);
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m)
#pragma unroll
                for (int n = 0; n < THREAD_N / 2; ++n) C_rmem[m][n] = __hfma2(A_rmem[m], B_rmem[n], C_rmem[m][n]);
        }
        // The next iteration overwrites both tiles, so all threads must have read them.
        __syncthreads();
    }
    const int64_t row = off_m + thread_m;
    const int64_t col = off_n + thread_n;
    // TODO(2): Store this thread's elements, four at a time, where they are inside C. (~6 lines)
#pragma unroll
    for (int m = 0; m < THREAD_M; ++m)
#pragma unroll
        for (int n = 0; n < THREAD_N; n += VEC)
            if (row + m < M && col + n < N)
                *reinterpret_cast<uint2*>(&C[(row + m) * N + col + n]) =
                    *reinterpret_cast<const uint2*>(&C_rmem[m][n / 2]);
    // END TODO(2)
}

KATA_EXPORT void hgemm_t_8x8_sliced_k_f16x4_pack(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_t_8x8_sliced_k_f16x4_pack_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
