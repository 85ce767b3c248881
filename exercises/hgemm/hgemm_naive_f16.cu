// hgemm_naive_f16: C = A @ B in half precision, one element of C per thread, all operands from global memory
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, any M, N, K >= 1
// Technique  a thread walks along one row of A and down one column of B, and keeps the sum in half
// New        over sgemm_naive_f32: half elements, and what a sum of 11 bits does to the answer
// Bound      memory instructions: two loads of two bytes per multiply-add
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int BLOCK_M = 32;
constexpr int BLOCK_N = 32;
constexpr int THREADS = BLOCK_M * BLOCK_N;  // one per element of the tile of C

__global__ void __launch_bounds__(THREADS) hgemm_naive_f16_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ B,  // [K, N]
    half* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    // TODO(1): Give each thread its own row and column of C within the tile. A warp loads B and stores C coalesced, and
    //   loads A as one broadcast. (~2 lines)
    // END TODO(1)
    // TODO(2): Sum A[row, k] * B[k, col] over all k in a half, by the intrinsic that rounds product and addition once.
    //   Threads outside C must not load or store. (~5 lines)
    // END TODO(2)
}

KATA_EXPORT void hgemm_naive_f16(const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const dim3 threads(BLOCK_N, BLOCK_M);
    hgemm_naive_f16_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(A, B, C, M, N, K);
}
