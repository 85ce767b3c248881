// hgemm_mma_m16n8k16_mma2x4_warp4x4_stages_dsmem_tn: C = A @ B^T on Tensor Cores by inline PTX
//
// Shapes     A: [M, K], B: [N, K], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  128x128 per block, a ring of four slices in dynamic shared memory, rows padded; B in the order that
//            mma.sync wants
// New        over hgemm_mma_m16n8k16_mma2x4_warp4x4_stages: a column of the right operand is a row of B in memory
// Bound      shared memory and instructions: a warp loads 3 KB of fragments for 16 mma.sync
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
static_assert(TILES_N % 4 == 0, "four tiles side by side are stored together");
constexpr int WARP_M = TILES_M * MMA_M;
constexpr int WARP_N = TILES_N * MMA_N;
constexpr int BLOCK_M = WARPS_M * WARP_M;
constexpr int BLOCK_N = WARPS_N * WARP_N;
constexpr int BLOCK_K = MMA_K;
constexpr int STAGES = 4;  // slots in the ring
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int CHUNK = 8;    // halves in one access of 16 bytes
constexpr int PAD = CHUNK;  // unused halves at the end of each row of shared memory
constexpr int SMEM_BYTES = STAGES * (BLOCK_M + BLOCK_N) * (BLOCK_K + PAD) * int{sizeof(half)};

// shared -> registers: four 8x8 matrices. Lane l passes the address of row l % 8 of matrix l / 8. From each matrix it
// gets elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4 (PTX ISA, "Warp-level matrix load instruction: ldmatrix").
__device__ inline void ldmatrix_x4(uint32_t (&regs)[4], const half* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3])
                 : "r"(address)
                 : "memory");
}

// The same for two matrices. Lanes 0 to 15 pass the row addresses.
__device__ inline void ldmatrix_x2(uint32_t (&regs)[2], const half* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
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

// global -> shared: 16 bytes, without registers. They have arrived once a wait for their group returns. If inside is
// false, it reads nothing and writes zeros (PTX ISA, "cp.async": src-size).
__device__ inline void cp_async16(half* smem, const half* gmem, bool inside) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
    const size_t from = __cvta_generic_to_global(gmem);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

// Makes a group of this thread's copies since the last commit.
__device__ inline void cp_async_commit() {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

// Waits until at most the PENDING newest groups of this thread are in flight.
template <int PENDING>
__device__ inline void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" : : "n"(PENDING) : "memory");
}

// global -> shared: a tile of ROWS rows and COLS columns, 16 bytes at a time. rows and cols count what the matrix has
// from the tile's corner on. Elements outside the matrix count as 0.
template <int ROWS, int COLS>
__device__ inline void load_tile(half (&smem)[ROWS][COLS + PAD], const half* gmem, int ld, int64_t rows, int64_t cols) {
    constexpr int STEP = THREADS / (COLS / CHUNK);  // rows that the block copies at a time
    static_assert(THREADS % (COLS / CHUNK) == 0 && ROWS % STEP == 0, "a thread keeps to its column");
    const int row = threadIdx.x / (COLS / CHUNK);
    const int col = threadIdx.x % (COLS / CHUNK) * CHUNK;
    const half* from = gmem + int64_t{row} * ld + col;
#pragma unroll
    for (int step = 0; step < ROWS; step += STEP) {
        cp_async16(&smem[row + step][col], from + int64_t{step} * ld, row + step < rows && col < cols);
    }
}

// shared -> registers: the fragments of both slices for a warp's WARP_M x WARP_N tile of C.
__device__ inline void load_fragments(
    uint32_t (&A_rmem)[TILES_M][4], uint32_t (&B_rmem)[TILES_N][2], const half (&A_smem)[BLOCK_M][BLOCK_K + PAD],
    const half (&B_smem)[BLOCK_N][BLOCK_K + PAD], int warp_m, int warp_n) {
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < TILES_M; ++m)
        ldmatrix_x4(A_rmem[m], &A_smem[warp_m + m * MMA_M + lane_id % 16][lane_id / 16 * CHUNK]);
    // TODO(1): Load the fragments of B, two 8x8 matrices each. The left one holds k 0 to 7 of the tile's eight columns,
    //   the right one k 8 to 15. A lane's two elements of a fragment are now adjacent in memory. (~4 lines)
#pragma unroll
    for (int n = 0; n < TILES_N; ++n)
        ldmatrix_x2(B_rmem[n], &B_smem[warp_n + n * MMA_N + lane_id % 8][lane_id / 8 % 2 * CHUNK]);
    // END TODO(1)
}

// registers -> global: four adjacent mma tiles. A lane holds two columns of a row of each tile, and its quad (lanes 4 i
// to 4 i + 3) the whole row. After an exchange lane q of a quad holds the whole row of tile q, 16 bytes.
__device__ inline void store_tiles(half* C, const float (*c)[4], int64_t off_m, int64_t off_n, int M, int N) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int lane_id = threadIdx.x % 32;
        uint32_t
            pairs[4];  // at first this lane's two columns of tile n, finally lane n's two columns of this lane's tile
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const half2 pair = __floats2half2_rn(c[n][2 * i], c[n][2 * i + 1]);
            pairs[n] = reinterpret_cast<const uint32_t&>(pair);
        }
#pragma unroll
        for (int step = 1; step < 4; step *= 2) {
            const bool upper = (lane_id & step) != 0;
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                if ((n & step) != 0) continue;
                const uint32_t got = __shfl_xor_sync(0xffffffff, upper ? pairs[n] : pairs[n + step], step);
                pairs[n] = upper ? got : pairs[n];
                pairs[n + step] = upper ? pairs[n + step] : got;
            }
        }
        const int64_t row = off_m + i * 8 + lane_id / 4;
        const int64_t col = off_n + lane_id % 4 * MMA_N;
        // __stwb, because nvcc splits the assignment of a uint4 of selected parts into four 4-byte stores.
        const uint4 halves = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        if (row < M && col < N) __stwb(reinterpret_cast<uint4*>(&C[row * N + col]), halves);
    }
}

__global__ void __launch_bounds__(THREADS) hgemm_mma_m16n8k16_mma2x4_warp4x4_stages_dsmem_tn_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ B,  // [N, K]
    half* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    // Dynamic shared memory: the launch passes its size. It is 48 KB here, the maximum for static shared memory.
    extern __shared__ __align__(16) half smem[];
    const auto A_smem = reinterpret_cast<half(*)[BLOCK_M][BLOCK_K + PAD]>(smem);             // [STAGES]
    const auto B_smem = reinterpret_cast<half(*)[BLOCK_N][BLOCK_K + PAD]>(A_smem + STAGES);  // [STAGES]
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int warp_id = threadIdx.x / 32;
    const int warp_m = warp_id / WARPS_N * WARP_M;
    const int warp_n = warp_id % WARPS_N * WARP_N;
    float C_rmem[TILES_M][TILES_N][4] = {};
    const auto load_slice = [&](int slice) {
        const int stage = slice % STAGES;
        const int64_t off_k = int64_t{slice} * BLOCK_K;
        load_tile<BLOCK_M, BLOCK_K>(A_smem[stage], A + off_m * K + off_k, K, M - off_m, K - off_k);
        // TODO(2): Load the tile of B, in the order that it has in memory. (~1 line)
        load_tile<BLOCK_N, BLOCK_K>(B_smem[stage], B + off_n * K + off_k, K, N - off_n, K - off_k);
        // END TODO(2)
        cp_async_commit();
    };
    for (int slice = 0; slice < STAGES - 1; ++slice) load_slice(slice);
    const int slices = (K - 1) / BLOCK_K + 1;
    for (int slice = 0; slice < slices; ++slice) {
        cp_async_wait<STAGES - 2>();  // this thread's part of the slice has arrived
        __syncthreads();              // so has all threads' part, and all threads are done with the previous slice
        load_slice(slice + STAGES - 1);
        uint32_t A_rmem[TILES_M][4];
        uint32_t B_rmem[TILES_N][2];
        load_fragments(A_rmem, B_rmem, A_smem[slice % STAGES], B_smem[slice % STAGES], warp_m, warp_n);
#pragma unroll
        for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
            for (int n = 0; n < TILES_N; ++n) mma_m16n8k16(C_rmem[m][n], A_rmem[m], B_rmem[n]);
        }
    }
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
        for (int n = 0; n < TILES_N; n += 4)
            store_tiles(C, &C_rmem[m][n], off_m + warp_m + m * MMA_M, off_n + warp_n + n * MMA_N, M, N);
    }
}

KATA_EXPORT void hgemm_mma_m16n8k16_mma2x4_warp4x4_stages_dsmem_tn(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    // A block has 48 KB by default. One more slot would need more, so the kernel already requests it.
    const auto kernel = hgemm_mma_m16n8k16_mma2x4_warp4x4_stages_dsmem_tn_kernel;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES);
    kernel<<<tiles_m * tiles_n, THREADS, SMEM_BYTES, stream>>>(A, B, C, M, N, K);
}
