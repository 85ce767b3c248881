// sgemm_wmma_m16n16k8_mma4x2_warp2x4: C = A @ B on Tensor Cores in TF32, sums in float
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f32, row-major, contiguous, bases of A and B 16-byte, of C 32-byte aligned
//            (required by store_matrix_sync), M and N multiples of 16, K of 4; each element of A and B is first rounded
//            to TF32: 11 significant bits, ties away from zero
// Technique  128x128x8 tiles; 8 warps, 4 x 2, each with 2 x 4 fragments of C, whose products the warp computes together
// New        over sgemm_t_8x8_sliced_k_f32x4: thousands of multiply-adds per instruction of a warp; rounding in
//            registers, so the caller's A and B stay unchanged
// Bound      latency: no warp multiplies while the next slice is in flight from global memory
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
constexpr int PAD_A = 4;  // rows of A's tile begin 12 words apart: the 8 x 4 words of a fragment's part lie in 32 banks
constexpr int PAD_B = 8;  // rows of B's tile begin 8 banks apart: the 4 x 8 words of a fragment's part lie in 32 banks
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int PACK = 4;  // floats in 16 bytes

using FragmentA = wmma::fragment<wmma::matrix_a, MMA_M, MMA_N, MMA_K, wmma::precision::tf32, wmma::row_major>;
using FragmentB = wmma::fragment<wmma::matrix_b, MMA_M, MMA_N, MMA_K, wmma::precision::tf32, wmma::row_major>;
using FragmentC = wmma::fragment<wmma::accumulator, MMA_M, MMA_N, MMA_K, float>;

// global -> shared: the tile of X, a matrix of rows x cols, that begins at (off_row, off_col). Elements outside X count
// as 0. A pack is wholly inside or wholly outside: cols is a multiple of 4.
template <int ROWS, int COLS, int PAD>
__device__ inline void load_tile(
    float (*X_smem)[COLS + PAD], const float* X, int64_t off_row, int64_t off_col, int rows, int cols) {
    static_assert(ROWS * COLS % (THREADS * PACK) == 0, "every thread has equally many packs");
#pragma unroll
    for (int i = 0; i < ROWS * COLS; i += THREADS * PACK) {
        const int row = (i + threadIdx.x * PACK) / COLS;
        const int col = (i + threadIdx.x * PACK) % COLS;
        float4 pack = {};
        if (off_row + row < rows && off_col + col < cols)
            pack = *reinterpret_cast<const float4*>(&X[(off_row + row) * cols + off_col + col]);
        *reinterpret_cast<float4*>(&X_smem[row][col]) = pack;
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
    // TODO(1): Replace each element by its rounded value. (~2 lines)
#pragma unroll
    for (int i = 0; i < X_rmem.num_elements; ++i) X_rmem.x[i] = wmma::__float_to_tf32(X_rmem.x[i]);
    // END TODO(1)
}

// shared -> registers: adds this warp's part of the product of a tile of A and a tile of B to its fragments of C.
__device__ inline void compute_tile(
    FragmentC (*C_rmem)[FRAGS_N], const float (*A_smem)[BLOCK_K + PAD_A], const float (*B_smem)[BLOCK_N + PAD_B],
    int warp_m, int warp_n) {
    // TODO(2): Load and round the fragments of A and of B that this warp needs, once each, and multiply each of A by
    //   each of B. (~15 lines)
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
    // END TODO(2)
}

__global__ void __launch_bounds__(THREADS) sgemm_wmma_m16n16k8_mma4x2_warp2x4_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(32) __shared__ float A_smem[BLOCK_M][BLOCK_K + PAD_A];
    alignas(32) __shared__ float B_smem[BLOCK_K][BLOCK_N + PAD_B];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int warp_m = threadIdx.x / 32 / WARPS_N * WARP_M;  // this warp's part of the tile
    const int warp_n = threadIdx.x / 32 % WARPS_N * WARP_N;
    FragmentC C_rmem[FRAGS_M][FRAGS_N];
#pragma unroll
    for (int i = 0; i < FRAGS_M * FRAGS_N; ++i) wmma::fill_fragment(C_rmem[i / FRAGS_N][i % FRAGS_N], 0.0f);
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        load_tile<BLOCK_M, BLOCK_K, PAD_A>(A_smem, A, off_m, off_k, M, K);
        load_tile<BLOCK_K, BLOCK_N, PAD_B>(B_smem, B, off_k, off_n, K, N);
        // A thread reads rows and columns that others staged, so all of them must have written.
        __syncthreads();
        compute_tile(C_rmem, A_smem, B_smem, warp_m, warp_n);
        // The next iteration overwrites both tiles, so all threads must have read them.
        __syncthreads();
    }
    // TODO(3): Store the fragments that belong to C. M and N are multiples of 16, so a fragment is wholly inside or
    //   wholly outside. (~6 lines)
#pragma unroll
    for (int i = 0; i < FRAGS_M * FRAGS_N; ++i) {
        const int64_t row = off_m + warp_m + i / FRAGS_N * MMA_M;
        const int64_t col = off_n + warp_n + i % FRAGS_N * MMA_N;
        if (row < M && col < N)
            wmma::store_matrix_sync(&C[row * N + col], C_rmem[i / FRAGS_N][i % FRAGS_N], N, wmma::mem_row_major);
    }
    // END TODO(3)
}

KATA_EXPORT void sgemm_wmma_m16n16k8_mma4x2_warp2x4(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    sgemm_wmma_m16n16k8_mma4x2_warp2x4_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
