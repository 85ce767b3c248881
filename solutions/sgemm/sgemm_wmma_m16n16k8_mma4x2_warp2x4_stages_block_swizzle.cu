// sgemm_wmma_m16n16k8_mma4x2_warp2x4_stages_block_swizzle: C = A @ B on Tensor Cores in TF32, sums in float
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f32, row-major, contiguous, bases of A and B 16-byte, of C 32-byte aligned
//            (required by store_matrix_sync), M and N multiples of 16, K of 4; each element of A and B is first rounded
//            to TF32: 11 significant bits, ties away from zero
// Technique  128x128x8 tiles; C is cut into strips of eight tiles, processed one after another
// New        over sgemm_wmma_m16n16k8_mma4x2_warp2x4_stages: concurrent blocks share more of A and B
// Bound      shared memory and the instructions around the products
#include "kata.cuh"
#include <cstdint>
#include <mma.h>

namespace wmma = nvcuda::wmma;

constexpr int MMA_M = 16;
constexpr int MMA_N = 16;
constexpr int MMA_K = 8;
constexpr int WARPS_M = 4;
constexpr int WARPS_N = 2;
constexpr int FRAGS_M = 2;  // of C, per warp
constexpr int FRAGS_N = 4;
constexpr int WARP_M = FRAGS_M * MMA_M;
constexpr int WARP_N = FRAGS_N * MMA_N;
constexpr int BLOCK_M = WARPS_M * WARP_M;
constexpr int BLOCK_N = WARPS_N * WARP_N;
constexpr int BLOCK_K = MMA_K;
constexpr int STAGES = 4;  // tiles of A and of B in shared memory
constexpr int PAD_A = 4;  // rows of A's tile begin 12 words apart: the 8 x 4 words of a fragment's part lie in 32 banks
constexpr int PAD_B = 8;  // rows of B's tile begin 8 banks apart: the 4 x 8 words of a fragment's part lie in 32 banks
constexpr int STRIP = 8;  // adjacent tiles of C that are computed at about the same time
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int PACK = 4;  // floats in 16 bytes

using FragmentA = wmma::fragment<wmma::matrix_a, MMA_M, MMA_N, MMA_K, wmma::precision::tf32, wmma::row_major>;
using FragmentB = wmma::fragment<wmma::matrix_b, MMA_M, MMA_N, MMA_K, wmma::precision::tf32, wmma::row_major>;
using FragmentC = wmma::fragment<wmma::accumulator, MMA_M, MMA_N, MMA_K, float>;

// global -> shared, 16 bytes, without registers, bypassing L1: cp.async of the PTX ISA, 9.7.9.25.3.1. If the pack is
// outside the matrix, it reads nothing and writes zeros.
__device__ inline void copy_async(float* X_smem, const float* X, bool inside) {
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
// outside X count as 0. A pack is wholly inside or wholly outside: cols is a multiple of 4.
template <int ROWS, int COLS, int PAD>
__device__ inline void load_tile(
    float (*X_smem)[COLS + PAD], const float* X, int64_t off_row, int64_t off_col, int rows, int cols) {
    static_assert(ROWS * COLS % (THREADS * PACK) == 0, "every thread has equally many packs");
#pragma unroll
    for (int i = 0; i < ROWS * COLS; i += THREADS * PACK) {
        const int row = (i + threadIdx.x * PACK) / COLS;
        const int col = (i + threadIdx.x * PACK) % COLS;
        const bool inside = off_row + row < rows && off_col + col < cols;
        copy_async(&X_smem[row][col], inside ? &X[(off_row + row) * cols + off_col + col] : X, inside);
    }
}

// shared -> registers: wmma::load_matrix_sync for an address that is known to be in shared memory. The compiler turns
// load_matrix_sync itself into loads that find the memory space at run time. wmma.load of the PTX ISA, 9.7.14.4.3.
__device__ inline void load_fragment(FragmentA& A_rmem, const float* A_smem) {
    unsigned x[4];
    asm volatile("wmma.load.a.sync.aligned.row.m16n16k8.shared.tf32 {%0, %1, %2, %3}, [%4], %5;\n"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(A_smem))), "n"(BLOCK_K + PAD_A)
                 : "memory");
#pragma unroll
    for (int i = 0; i < 4; ++i) A_rmem.x[i] = __uint_as_float(x[i]);
}

__device__ inline void load_fragment(FragmentB& B_rmem, const float* B_smem) {
    unsigned x[4];
    asm volatile("wmma.load.b.sync.aligned.row.m16n16k8.shared.tf32 {%0, %1, %2, %3}, [%4], %5;\n"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(B_smem))), "n"(BLOCK_N + PAD_B)
                 : "memory");
#pragma unroll
    for (int i = 0; i < 4; ++i) B_rmem.x[i] = __uint_as_float(x[i]);
}

// Rounds this lane's elements of a fragment to TF32. The Tensor Core would drop the last 13 bits: a larger error, and
// always towards zero.
template <class Fragment>
__device__ inline void round_fragment(Fragment& X_rmem) {
#pragma unroll
    for (int i = 0; i < X_rmem.num_elements; ++i) X_rmem.x[i] = wmma::__float_to_tf32(X_rmem.x[i]);
}

// shared -> registers: adds this warp's part of the product of a tile of A and a tile of B to its fragments of C.
__device__ inline void compute_tile(
    FragmentC (*C_rmem)[FRAGS_N], const float (*A_smem)[BLOCK_K + PAD_A], const float (*B_smem)[BLOCK_N + PAD_B],
    int warp_m, int warp_n) {
    FragmentA A_rmem[FRAGS_M];
    FragmentB B_rmem[FRAGS_N];
#pragma unroll
    for (int m = 0; m < FRAGS_M; ++m) {
        load_fragment(A_rmem[m], &A_smem[warp_m + m * MMA_M][0]);
        round_fragment(A_rmem[m]);
    }
#pragma unroll
    for (int n = 0; n < FRAGS_N; ++n) {
        load_fragment(B_rmem[n], &B_smem[0][warp_n + n * MMA_N]);
        round_fragment(B_rmem[n]);
    }
#pragma unroll
    for (int m = 0; m < FRAGS_M; ++m)
#pragma unroll
        for (int n = 0; n < FRAGS_N; ++n) wmma::mma_sync(C_rmem[m][n], A_rmem[m], B_rmem[n], C_rmem[m][n]);
}

__global__ void __launch_bounds__(THREADS) sgemm_wmma_m16n16k8_mma4x2_warp2x4_stages_block_swizzle_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(32) __shared__ float A_smem[STAGES][BLOCK_M][BLOCK_K + PAD_A];
    alignas(32) __shared__ float B_smem[STAGES][BLOCK_K][BLOCK_N + PAD_B];
    // This block's BLOCK_M x BLOCK_N tile of C. Blocks go through C in strips of STRIP tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    int64_t off_m = 0;
    int64_t off_n = 0;
    // TODO(1): Give this block its tile. Strips of STRIP columns of tiles follow from left to right, rows within a
    //   strip from top to bottom, tiles within a row from left to right. The last strip may be narrower. Each tile
    //   belongs to exactly one block. (~6 lines)
    const int64_t strip_tiles = static_cast<int64_t>(STRIP) * tiles_m;
    const int strip = static_cast<int>(blockIdx.x / strip_tiles);
    const int in_strip = static_cast<int>(blockIdx.x % strip_tiles);
    const int width = min(STRIP, tiles_n - strip * STRIP);
    off_m = static_cast<int64_t>(in_strip / width) * BLOCK_M;
    off_n = static_cast<int64_t>(strip * STRIP + in_strip % width) * BLOCK_N;
    // END TODO(1)
    const int warp_m = threadIdx.x / 32 / WARPS_N * WARP_M;  // this warp's part of the tile
    const int warp_n = threadIdx.x / 32 % WARPS_N * WARP_N;
    FragmentC C_rmem[FRAGS_M][FRAGS_N];
#pragma unroll
    for (int i = 0; i < FRAGS_M * FRAGS_N; ++i) wmma::fill_fragment(C_rmem[i / FRAGS_N][i % FRAGS_N], 0.0f);
    const int tiles = (K - 1) / BLOCK_K + 1;
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        if (tile < tiles) {
            load_tile<BLOCK_M, BLOCK_K, PAD_A>(A_smem[tile], A, off_m, tile * BLOCK_K, M, K);
            load_tile<BLOCK_K, BLOCK_N, PAD_B>(B_smem[tile], B, tile * BLOCK_K, off_n, K, N);
        }
        commit_group();
    }
    for (int tile = 0; tile < tiles; ++tile) {
        wait_group<STAGES - 2>();
        // The slice has arrived for this thread. After the barrier it has for all, and all are done with the previous
        // slice.
        __syncthreads();
        const int next = tile + STAGES - 1;
        if (next < tiles) {
            const int64_t off_k = static_cast<int64_t>(next) * BLOCK_K;
            load_tile<BLOCK_M, BLOCK_K, PAD_A>(A_smem[next % STAGES], A, off_m, off_k, M, K);
            load_tile<BLOCK_K, BLOCK_N, PAD_B>(B_smem[next % STAGES], B, off_k, off_n, K, N);
        }
        // If no slice is left, an empty group keeps the count.
        commit_group();
        compute_tile(C_rmem, A_smem[tile % STAGES], B_smem[tile % STAGES], warp_m, warp_n);
    }
#pragma unroll
    for (int i = 0; i < FRAGS_M * FRAGS_N; ++i) {
        const int64_t row = off_m + warp_m + i / FRAGS_N * MMA_M;
        const int64_t col = off_n + warp_n + i % FRAGS_N * MMA_N;
        if (row < M && col < N)
            wmma::store_matrix_sync(&C[row * N + col], C_rmem[i / FRAGS_N][i % FRAGS_N], N, wmma::mem_row_major);
    }
}

KATA_EXPORT void sgemm_wmma_m16n16k8_mma4x2_warp2x4_stages_block_swizzle(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    sgemm_wmma_m16n16k8_mma4x2_warp2x4_stages_block_swizzle_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(
        A, B, C, M, N, K);
}
