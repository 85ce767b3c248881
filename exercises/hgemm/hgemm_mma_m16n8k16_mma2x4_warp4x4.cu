// hgemm_mma_m16n8k16_mma2x4_warp4x4: C = A @ B on Tensor Cores by inline PTX, a warp keeps 4x4 mma tiles in registers
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  2x4 warps per block, 4x4 mma tiles (64x32 elements of C) per warp: 128x128 per block
// New        over hgemm_mma_m16n8k16_mma2x4: each fragment is used four times, each staged element four times as often
// Bound      latency: copying and computing alternate; and bank conflicts of ldmatrix
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 16;
constexpr int WARPS_M = 2;
constexpr int WARPS_N = 4;
constexpr int TILES_M = 4;  // mma tiles per warp
constexpr int TILES_N = 4;
constexpr int WARP_M = TILES_M * MMA_M;
constexpr int WARP_N = TILES_N * MMA_N;
constexpr int BLOCK_M = WARPS_M * WARP_M;
constexpr int BLOCK_N = WARPS_N * WARP_N;
constexpr int BLOCK_K = MMA_K;
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int CHUNK = 8;  // halves in one access of 16 bytes

// shared -> registers: four 8x8 matrices. Lane l passes the address of row l % 8 of matrix l / 8. From each matrix it
// gets elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4 (PTX ISA, "Warp-level matrix load instruction: ldmatrix").
__device__ inline void ldmatrix_x4(uint32_t (&regs)[4], const half* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3])
                 : "r"(address)
                 : "memory");
}

// The same for two matrices, each transposed. Lanes 0 to 15 pass the row addresses. A lane gets elements l / 4 of rows
// 2 * (l % 4) and 2 * (l % 4) + 1.
__device__ inline void ldmatrix_x2_trans(uint32_t (&regs)[2], const half* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(regs[0]), "=r"(regs[1])
                 : "r"(address)
                 : "memory");
}

// c += a @ b for a [16, 16], b [16, 8], c [16, 8]. PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point
// type", defines the fragments.
__device__ inline void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// global -> shared: a tile of ROWS rows and COLS columns, 16 bytes at a time. rows and cols count what the matrix has
// from the tile's corner on. Elements outside the matrix count as 0.
template <int ROWS, int COLS>
__device__ inline void load_tile(half (&smem)[ROWS][COLS], const half* gmem, int ld, int64_t rows, int64_t cols) {
    for (int chunk = threadIdx.x; chunk < ROWS * COLS / CHUNK; chunk += THREADS) {
        const int row = chunk / (COLS / CHUNK);
        const int col = chunk % (COLS / CHUNK) * CHUNK;
        uint4 halves = make_uint4(0, 0, 0, 0);
        if (row < rows && col < cols) halves = *reinterpret_cast<const uint4*>(&gmem[int64_t{row} * ld + col]);
        *reinterpret_cast<uint4*>(&smem[row][col]) = halves;
    }
}

// shared -> registers: the fragments of both slices for a warp's WARP_M x WARP_N tile of C.
__device__ inline void load_fragments(
    uint32_t (&A_rmem)[TILES_M][4], uint32_t (&B_rmem)[TILES_N][2], const half (&A_smem)[BLOCK_M][BLOCK_K],
    const half (&B_smem)[BLOCK_K][BLOCK_N], int warp_m, int warp_n) {
    // TODO(1): Load the fragments of A for the warp's TILES_M rows of tiles, and of B for its TILES_N columns, once
    //   each. The compiler keeps an array in registers only if it knows all indices: unroll the loops. (~7 lines)
    // END TODO(1)
}

// registers -> global: one mma tile of C, whose first element is C[off_m, off_n].
__device__ inline void store_tile(half* C, const float (&c)[4], int64_t off_m, int64_t off_n, int M, int N) {
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int64_t row = off_m + i * 8 + lane_id / 4;
        const int64_t col = off_n + lane_id % 4 * 2;
        const half2 pair = __floats2half2_rn(c[2 * i], c[2 * i + 1]);
        if (row < M && col < N) *reinterpret_cast<half2*>(&C[row * N + col]) = pair;
    }
}

__global__ void __launch_bounds__(THREADS) hgemm_mma_m16n8k16_mma2x4_warp4x4_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ B,  // [K, N]
    half* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    __shared__ __align__(16) half A_smem[BLOCK_M][BLOCK_K];
    __shared__ __align__(16) half B_smem[BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int warp_id = threadIdx.x / 32;
    const int warp_m = warp_id / WARPS_N * WARP_M;
    const int warp_n = warp_id % WARPS_N * WARP_N;
    float C_rmem[TILES_M][TILES_N][4] = {};
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        load_tile(A_smem, A + off_m * K + off_k, K, M - off_m, K - off_k);
        load_tile(B_smem, B + off_k * N + off_n, N, K - off_k, N - off_n);
        __syncthreads();  // other threads staged most of what a lane passes to ldmatrix
        uint32_t A_rmem[TILES_M][4];
        uint32_t B_rmem[TILES_N][2];
        load_fragments(A_rmem, B_rmem, A_smem, B_smem, warp_m, warp_n);
        // TODO(2): registers -> sums: multiply each fragment of A by each of B. (~5 lines)
        // END TODO(2)
        __syncthreads();  // the next iteration overwrites both slices
    }
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
        for (int n = 0; n < TILES_N; ++n)
            store_tile(C, C_rmem[m][n], off_m + warp_m + m * MMA_M, off_n + warp_n + n * MMA_N, M, N);
    }
}

KATA_EXPORT void hgemm_mma_m16n8k16_mma2x4_warp4x4(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_mma_m16n8k16_mma2x4_warp4x4_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
