// hgemm_wmma_m32n8k16_mma2x4_warp2x4_dbuf_async: C = A @ B on Tensor Cores, with fragments of another shape
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, multiples of 8
// Technique  128x128x16 tiles, 2 x 4 warps of 64 x 32, fragments of 32 x 16 of A and 16 x 8 of B
// New        over hgemm_wmma_m16n16k16_mma4x2_warp2x4_dbuf_async: a fragment of A has twice the bytes, one of B half
// Bound      shared memory, as in the kata before, but less of it for B, where eight rows share a bank
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

constexpr int MMA_M = 32;
constexpr int MMA_N = 8;
constexpr int MMA_K = 16;
constexpr int WARPS_M = 2;
constexpr int WARPS_N = 4;
constexpr int FRAGS_M = 2;  // of C, per warp
constexpr int FRAGS_N = 4;
constexpr int WARP_M = FRAGS_M * MMA_M;
constexpr int WARP_N = FRAGS_N * MMA_N;
constexpr int BLOCK_M = WARPS_M * WARP_M;
constexpr int BLOCK_N = WARPS_N * WARP_N;
constexpr int BLOCK_K = MMA_K;
constexpr int STAGES = 2;  // tiles of A and of B in shared memory
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int PACK = 8;  // halves in 16 bytes, and what a lane stores of a fragment of C
static_assert(BLOCK_M * BLOCK_K % (THREADS * PACK) == 0 && BLOCK_K * BLOCK_N % (THREADS * PACK) == 0, "whole turns");

using FragmentA = wmma::fragment<wmma::matrix_a, MMA_M, MMA_N, MMA_K, half, wmma::row_major>;
using FragmentB = wmma::fragment<wmma::matrix_b, MMA_M, MMA_N, MMA_K, half, wmma::row_major>;
using FragmentC = wmma::fragment<wmma::accumulator, MMA_M, MMA_N, MMA_K, float>;

// global -> shared, 16 bytes, without registers, bypassing L1: cp.async of the PTX ISA, 9.7.9.25.3.1.
__device__ inline void copy_async(half* X_smem, const half* X, bool inside) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(X_smem));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(X), "r"(inside ? 16 : 0) : "memory");
}

// Makes a group of all copies that this thread has started since the last commit (9.7.9.25.3.2).
__device__ inline void commit_group() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Waits until at most the PENDING newest groups of this thread are in flight (9.7.9.25.3.3).
template <int PENDING>
__device__ inline void wait_group() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
}

// global -> shared: starts to copy the tile of X, a matrix of rows x cols, that begins at (off_row, off_col). Elements
// outside X count as 0. A pack is wholly inside or wholly outside: cols is a multiple of 8.
template <int ROWS, int COLS>
__device__ inline void load_tile(
    half (*X_smem)[COLS], const half* X, int64_t off_row, int64_t off_col, int rows, int cols) {
    for (int first = 0; first < ROWS * COLS; first += THREADS * PACK) {
        const int i = first + threadIdx.x * PACK;
        const int row = i / COLS;
        const int col = i % COLS;
        const bool inside = off_row + row < rows && off_col + col < cols;
        copy_async(&X_smem[row][col], &X[(off_row + row) * cols + off_col + col], inside);
    }
}

// shared -> registers: adds this warp's part of the product of a tile of A and a tile of B to its fragments of C.
__device__ inline void compute_tile(
    FragmentC (*C_rmem)[FRAGS_N], const half (*A_smem)[BLOCK_K], const half (*B_smem)[BLOCK_N], int warp_m,
    int warp_n) {
    // TODO(1): Load, and multiply each fragment of A by each of B. The fragments are 32 x 16 of A, 16 x 8 of B and 32 x
    //   8 of C. A warp still has 2 x 4 of C, which now cover 64 x 32 of the tile. (~14 lines)
#pragma unroll
    for (int k = 0; k < BLOCK_K; k += MMA_K) {
        FragmentA A_rmem[FRAGS_M];
        FragmentB B_rmem[FRAGS_N];
#pragma unroll
        for (int m = 0; m < FRAGS_M; ++m) wmma::load_matrix_sync(A_rmem[m], &A_smem[warp_m + m * MMA_M][k], BLOCK_K);
#pragma unroll
        for (int n = 0; n < FRAGS_N; ++n) wmma::load_matrix_sync(B_rmem[n], &B_smem[k][warp_n + n * MMA_N], BLOCK_N);
#pragma unroll
        for (int m = 0; m < FRAGS_M; ++m)
#pragma unroll
            for (int n = 0; n < FRAGS_N; ++n) wmma::mma_sync(C_rmem[m][n], A_rmem[m], B_rmem[n], C_rmem[m][n]);
    }
    // END TODO(1)
}

// registers -> shared -> global: rounds a fragment of C to half and stores it at (off_m, off_n) of C. The layout of a
// fragment is not specified. In C_smem, which belongs to this warp, each element has a known place.
__device__ inline void store_fragment(
    const FragmentC& C_rmem, float* C_smem, half* C, int64_t off_m, int64_t off_n, int M, int N) {
    const int i = threadIdx.x % 32 * PACK;  // this lane's elements of the fragment: i..i+PACK-1
    const int64_t row = off_m + i / MMA_N;
    const int64_t col = off_n + i % MMA_N;
    wmma::store_matrix_sync(C_smem, C_rmem, MMA_N, wmma::mem_row_major);
    // A lane rounds what other lanes have stored.
    __syncwarp();
    if (row < M && col < N) {
        alignas(16) half2 pack[PACK / 2];
        for (int j = 0; j < PACK / 2; ++j) pack[j] = __floats2half2_rn(C_smem[i + 2 * j], C_smem[i + 2 * j + 1]);
        *reinterpret_cast<uint4*>(&C[row * N + col]) = *reinterpret_cast<const uint4*>(pack);
    }
    // The next fragment of this warp overwrites C_smem.
    __syncwarp();
}

__global__ void __launch_bounds__(THREADS) hgemm_wmma_m32n8k16_mma2x4_warp2x4_dbuf_async_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ B,  // [K, N]
    half* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(32) __shared__ half A_smem[STAGES][BLOCK_M][BLOCK_K];
    alignas(32) __shared__ half B_smem[STAGES][BLOCK_K][BLOCK_N];
    alignas(32) __shared__ float C_smem[WARPS_M * WARPS_N][MMA_M * MMA_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int warp_id = threadIdx.x / 32;
    const int warp_m = warp_id / WARPS_N * WARP_M;
    const int warp_n = warp_id % WARPS_N * WARP_N;
    FragmentC C_rmem[FRAGS_M][FRAGS_N];
#pragma unroll
    for (int i = 0; i < FRAGS_M * FRAGS_N; ++i) wmma::fill_fragment(C_rmem[i / FRAGS_N][i % FRAGS_N], 0.0f);
    const int tiles = (K - 1) / BLOCK_K + 1;
    load_tile<BLOCK_M, BLOCK_K>(A_smem[0], A, off_m, 0, M, K);
    load_tile<BLOCK_K, BLOCK_N>(B_smem[0], B, 0, off_n, K, N);
    commit_group();
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile % STAGES;
        wait_group<0>();
        // The tile has arrived for this thread. After the barrier it has for all, and all are done with the other
        // stage.
        __syncthreads();
        if (tile + 1 < tiles) {
            const int64_t off_k = static_cast<int64_t>(tile + 1) * BLOCK_K;
            load_tile<BLOCK_M, BLOCK_K>(A_smem[1 - stage], A, off_m, off_k, M, K);
            load_tile<BLOCK_K, BLOCK_N>(B_smem[1 - stage], B, off_k, off_n, K, N);
            commit_group();
        }
        compute_tile(C_rmem, A_smem[stage], B_smem[stage], warp_m, warp_n);
    }
#pragma unroll
    for (int m = 0; m < FRAGS_M; ++m)
#pragma unroll
        for (int n = 0; n < FRAGS_N; ++n)
            store_fragment(
                C_rmem[m][n], C_smem[warp_id], C, off_m + warp_m + m * MMA_M, off_n + warp_n + n * MMA_N, M, N);
}

KATA_EXPORT void hgemm_wmma_m32n8k16_mma2x4_warp2x4_dbuf_async(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_wmma_m32n8k16_mma2x4_warp2x4_dbuf_async_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
