// hgemm_mma_m16n8k16_naive: C = A @ B on Tensor Cores by inline PTX, one warp per 16x8 tile of C
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  ldmatrix gives each lane its part of A and B, mma.sync m16n8k16 multiplies them and adds in float
// New        over hgemm_wmma_m16n16k16_naive: the layout of fragments is known, so the kernel uses it
// Bound      global memory: 768 bytes fetched per 4096 operations
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 16;
constexpr int BLOCK_M = MMA_M;
constexpr int BLOCK_N = MMA_N;
constexpr int BLOCK_K = MMA_K;
constexpr int THREADS = 32;  // one warp
constexpr int CHUNK = 8;     // halves in one access of 16 bytes

// shared -> registers: four 8x8 matrices. Lane l passes the address of row l % 8 of matrix l / 8. From each matrix it
// gets elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4 (PTX ISA, "Warp-level matrix load instruction: ldmatrix").
__device__ inline void ldmatrix_x4(uint32_t (&regs)[4], const half* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    // TODO(1): Load with ldmatrix.sync.aligned.m8n8.x4.shared.b16: matrix i goes to regs[i]. The statement is volatile
    //   and clobbers memory, so that it stays on its side of the barriers. (~3 lines)
    // END TODO(1)
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
    // TODO(2): Issue one mma.sync.aligned.m16n8k16.row.col with f32 sums and f16 operands. c is read and written.
    //   (~4 lines)
    // END TODO(2)
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

// registers -> global: one mma tile of C, whose first element is C[off_m, off_n].
__device__ inline void store_tile(half* C, const float (&c)[4], int64_t off_m, int64_t off_n, int M, int N) {
    // TODO(3): Store the sums as half, two adjacent ones at a time. c[0] and c[1] are in row lane / 4, c[2] and c[3]
    //   eight rows below, all in columns 2 * (lane % 4) and the next. Store nothing outside C. (~8 lines)
    // END TODO(3)
}

__global__ void __launch_bounds__(THREADS) hgemm_mma_m16n8k16_naive_kernel(
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
    float C_rmem[4] = {};
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        load_tile(A_smem, A + off_m * K + off_k, K, M - off_m, K - off_k);
        load_tile(B_smem, B + off_k * N + off_n, N, K - off_k, N - off_n);
        __syncthreads();  // other lanes staged most of what a lane passes to ldmatrix
        // TODO(4): shared -> registers -> sums: load all of A's slice as four 8x8 matrices (top left, bottom left, top
        //   right, bottom right), and B's as two, the upper first, transposed. Each lane passes one row of one matrix.
        //   (~6 lines)
        // END TODO(4)
        __syncthreads();  // the next iteration overwrites both slices
    }
    store_tile(C, C_rmem, off_m, off_n, M, N);
}

KATA_EXPORT void hgemm_mma_m16n8k16_naive(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    hgemm_mma_m16n8k16_naive_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
