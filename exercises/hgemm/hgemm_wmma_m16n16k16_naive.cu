// hgemm_wmma_m16n16k16_naive: C = A @ B on Tensor Cores, one warp per 16 x 16 tile of C, operands from global memory
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 32-byte aligned bases, M, N, K multiples of 16
// Technique  the lanes of a warp together hold 16 x 16 fragments of A, B and C, and multiply them as one; sums in float
// New        over hgemm_naive_f16: 4096 multiply-adds per mma_sync of a warp instead of 32, and a sum of sufficient
//            precision
// Bound      global loads: 1 KB of A and B per 16 x 16 x 16 product, from L1 or L2 at best
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

constexpr int MMA_M = 16;
constexpr int MMA_N = 16;
constexpr int MMA_K = 16;
constexpr int BLOCK_M = MMA_M;
constexpr int BLOCK_N = MMA_N;
constexpr int THREADS = 32;  // one warp: its lanes hold a fragment together

using FragmentA = wmma::fragment<wmma::matrix_a, MMA_M, MMA_N, MMA_K, half, wmma::row_major>;
using FragmentB = wmma::fragment<wmma::matrix_b, MMA_M, MMA_N, MMA_K, half, wmma::row_major>;
using FragmentC = wmma::fragment<wmma::accumulator, MMA_M, MMA_N, MMA_K, float>;

__global__ void __launch_bounds__(THREADS) hgemm_wmma_m16n16k16_naive_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ B,  // [K, N]
    half* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(32) __shared__ float C_smem[MMA_M * MMA_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    FragmentC C_rmem;
    wmma::fill_fragment(C_rmem, 0.0f);
    // TODO(1): Sum the products of the 16 x 16 tiles of A and B that this tile of C needs. The lanes of the warp load
    //   each tile together, directly from the matrix. (~7 lines)
    // END TODO(1)
    // TODO(2): registers -> shared -> global: store the sums as halves. The layout of a fragment is not specified, so a
    //   lane cannot round and store what it holds. C_smem has a known order. (~6 lines)
    // END TODO(2)
}

KATA_EXPORT void hgemm_wmma_m16n16k16_naive(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_wmma_m16n16k16_naive_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
