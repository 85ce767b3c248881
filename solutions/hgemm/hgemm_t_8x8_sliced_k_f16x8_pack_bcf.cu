// hgemm_t_8x8_sliced_k_f16x8_pack_bcf: C = A @ B in half precision, A's tile stored transposed
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, any M; N, K multiples
//            of 8
// Technique  128x128x8 tiles, 8 x 8 elements of C per thread; per k one 128-bit load of A_smem and one of B_smem
// New        over hgemm_t_8x8_sliced_k_f16x8_pack: two loads from shared memory per k instead of twelve, free of
//            conflicts
// Bound      latency: nobody multiplies while the next slice of K is on its way
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 8;
constexpr int THREAD_M = 8;
constexpr int THREAD_N = 8;
constexpr int VEC = 8;  // halves in a pack of 16 bytes; a thread stages one of A or none, and one of B or none
constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
static_assert(BLOCK_M * BLOCK_K <= THREADS * VEC && BLOCK_K * BLOCK_N <= THREADS * VEC, "a pack per thread at most");
static_assert(THREAD_M == VEC && THREAD_N == VEC, "a row and a column of a thread's tile are one pack");

// global -> register: this thread's pack of the tile of X, a matrix of rows x cols, that begins at (off_row, off_col).
// What lies outside X counts as 0. Packs are inside or outside as a whole: cols is a multiple of 8.
template <int ROWS, int COLS>
__device__ inline uint4 load_pack(const half* X, int64_t off_row, int64_t off_col, int rows, int cols) {
    const int i = threadIdx.x * VEC;
    const int64_t row = off_row + i / COLS;
    const int64_t col = off_col + i % COLS;
    uint4 pack = {};
    if (i < ROWS * COLS && row < rows && col < cols) pack = *reinterpret_cast<const uint4*>(&X[row * cols + col]);
    return pack;
}

// register -> shared: the same pack to its place in the tile.
template <int ROWS, int COLS>
__device__ inline void store_pack(half (*X_smem)[COLS], uint4 pack) {
    const int i = threadIdx.x * VEC;
    if (i < ROWS * COLS) *reinterpret_cast<uint4*>(&X_smem[i / COLS][i % COLS]) = pack;
}

// register -> shared: the same pack to its place in the tile transposed.
template <int ROWS, int COLS>
__device__ inline void store_pack_transposed(half (*X_smem)[ROWS], uint4 pack) {
    // TODO(1): The VEC halves belong to VEC rows of X_smem now, and a warp's stores must not collide in a bank.
    //   (~5 lines)
    const int i = threadIdx.x * VEC;
    // Lanes hold neighbouring rows of X, of one pack each: their halves lie side by side.
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
    __shared__ alignas(16) half A_smem[BLOCK_K][BLOCK_M];  // transposed
    __shared__ alignas(16) half B_smem[BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C; blocks go along the rows of tiles. Offsets into a matrix are 64-bit:
    // M, N and K fit int, their products need not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int thread_m = threadIdx.x / (BLOCK_N / THREAD_N) * THREAD_M;  // this thread's tile within the block's
    const int thread_n = threadIdx.x % (BLOCK_N / THREAD_N) * THREAD_N;
    alignas(16) half2 C_rmem[THREAD_M][THREAD_N / 2] = {};
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        store_pack_transposed<BLOCK_M, BLOCK_K>(A_smem, load_pack<BLOCK_M, BLOCK_K>(A, off_m, off_k, M, K));
        store_pack<BLOCK_K, BLOCK_N>(B_smem, load_pack<BLOCK_K, BLOCK_N>(B, off_k, off_n, K, N));
        // A thread reads rows and columns that others staged: all of them must be done writing.
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            alignas(16) half A_rmem[THREAD_M];
            alignas(16) half2 B_rmem[THREAD_N / 2];
            // TODO(2): shared -> registers: this thread's THREAD_M elements of A and its THREAD_N of B, one 128-bit
            //   load each. (~2 lines)
            *reinterpret_cast<uint4*>(A_rmem) = *reinterpret_cast<const uint4*>(&A_smem[k][thread_m]);
            *reinterpret_cast<uint4*>(B_rmem) = *reinterpret_cast<const uint4*>(&B_smem[k][thread_n]);
            // END TODO(2)
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m)
#pragma unroll
                for (int n = 0; n < THREAD_N / 2; ++n)
                    C_rmem[m][n] = __hfma2(__half2half2(A_rmem[m]), B_rmem[n], C_rmem[m][n]);
        }
        // The next turn overwrites both tiles: all threads must be done reading.
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
    // One dimension of blocks, since y and z of a grid end at 65535: too few for a tall enough C. The count fits int:
    // 2^31 tiles would be a C of terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_t_8x8_sliced_k_f16x8_pack_bcf_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
