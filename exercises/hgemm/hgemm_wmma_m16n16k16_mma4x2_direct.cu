// hgemm_wmma_m16n16k16_mma4x2_direct: C = A @ B on Tensor Cores, eight warps side by side, operands from global memory
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 32-byte aligned bases, M, N, K multiples of 16
// Technique  4 x 2 warps per block, a 16 x 16 tile of C each; C is stored in packs of 16 bytes
// New        over hgemm_wmma_m16n16k16_naive: adjacent warps load the same tiles at about the same time, through one L1
// Bound      L1: still 1 KB of A and B per 16 x 16 x 16 product, 32 bytes of each row at a time
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

constexpr int MMA_M = 16;
constexpr int MMA_N = 16;
constexpr int MMA_K = 16;
constexpr int WARPS_M = 4;
constexpr int WARPS_N = 2;
constexpr int WARP_M = MMA_M;
constexpr int WARP_N = MMA_N;
constexpr int BLOCK_M = WARPS_M * WARP_M;
constexpr int BLOCK_N = WARPS_N * WARP_N;
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int PACK = 8;  // halves in 16 bytes, and what a lane stores of a fragment of C

using FragmentA = wmma::fragment<wmma::matrix_a, MMA_M, MMA_N, MMA_K, half, wmma::row_major>;
using FragmentB = wmma::fragment<wmma::matrix_b, MMA_M, MMA_N, MMA_K, half, wmma::row_major>;
using FragmentC = wmma::fragment<wmma::accumulator, MMA_M, MMA_N, MMA_K, float>;

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
    // TODO(1): Round this lane's eight elements to half and store them as one pack, if they are inside C. (~6 lines)
    // END TODO(1)
}

__global__ void __launch_bounds__(THREADS) hgemm_wmma_m16n16k16_mma4x2_direct_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ B,  // [K, N]
    half* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(32) __shared__ float C_smem[WARPS_M * WARPS_N][MMA_M * MMA_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int warp_id = threadIdx.x / 32;
    const int warp_m = warp_id / WARPS_N * WARP_M;
    const int warp_n = warp_id % WARPS_N * WARP_N;
    // The block may extend past M and N: a warp whose tile lies outside C has nothing to do.
    if (off_m + warp_m >= M || off_n + warp_n >= N) return;
    FragmentC C_rmem;
    wmma::fill_fragment(C_rmem, 0.0f);
    // TODO(2): Sum the products of the tiles of A and B that this warp's tile of C needs. (~7 lines)
    // END TODO(2)
    store_fragment(C_rmem, C_smem[warp_id], C, off_m + warp_m, off_n + warp_n, M, N);
}

KATA_EXPORT void hgemm_wmma_m16n16k16_mma4x2_direct(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_wmma_m16n16k16_mma4x2_direct_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
