// sgemm_mma_m16n8k8_mma2x4_warp4x8_stages_rbuf: C = A @ B on Tensor Cores in TF32 by mma.sync, operands a step ahead
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f32, row-major, contiguous, 16-byte aligned bases, N and K multiples of 4;
//            each element of A and B is first rounded to TF32: 11 significant bits, ties away from zero
// Technique  128x256x16 tiles, a ring of three in shared memory; 8 warps of 64x64; two sets of operands in registers
// New        over sgemm_wmma_m16n16k8_mma4x2_warp2x4_stages_block_swizzle: fragments with a known layout: B in 128-bit
//            loads, C in 128-bit stores at any edge; larger tiles; loads overlap with products
// Bound      instructions: rounding, and the loads around the products
#include "kata.cuh"
#include <cstdint>

constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 8;
constexpr int WARPS_M = 2;
constexpr int WARPS_N = 4;
constexpr int FRAGS_M = 4;  // of C, per warp
constexpr int FRAGS_N = 8;
constexpr int WARP_M = FRAGS_M * MMA_M;
constexpr int WARP_N = FRAGS_N * MMA_N;
constexpr int BLOCK_M = WARPS_M * WARP_M;
constexpr int BLOCK_N = WARPS_N * WARP_N;
constexpr int BLOCK_K = 16;
constexpr int STAGES = 3;  // tiles of A and of B in shared memory
constexpr int STRIP = 8;   // adjacent tiles of C that are computed at about the same time
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int PACK = 4;  // floats in 16 bytes
constexpr int LD_A =
    BLOCK_K + 4;  // rows of A's tile begin 20 words apart: eight packs in one column together cover all 32 banks
constexpr int LD_B = BLOCK_N + 8;  // rows of B's tile begin 8 banks apart: two packs in each of four rows cover them
constexpr int A_WORDS = BLOCK_M * LD_A;
constexpr int B_WORDS = BLOCK_K * LD_B;
constexpr int SMEM_BYTES = STAGES * (A_WORDS + B_WORDS) * 4;
static_assert(BLOCK_K / MMA_K % 2 == 0, "the first step of a tile is always in set 0");

// global -> shared, 16 bytes, without registers, bypassing L1: cp.async (PTX ISA, "cp.async": with src-size 0 it reads
// nothing and writes zeros).
__device__ inline void copy_async(float* X_smem, const float* X, bool inside) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(X_smem));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(X), "r"(inside ? 16 : 0) : "memory");
}

// Makes a group of all copies that this thread has started since the last commit.
__device__ inline void commit_group() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Waits until at most the PENDING newest groups of this thread are in flight.
template <int PENDING>
__device__ inline void wait_group() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
}

// global -> shared: starts to copy this thread's packs of a tile with ROWS rows of COLS elements: one column of packs,
// every STEP rows. X points to the first one, and ld is the length of a row there. rows counts the rows from X on that
// are inside the matrix: none if the column is not. Elements outside count as 0.
template <int ROWS, int COLS, int LD>
__device__ inline void load_tile(float* X_smem, const float* X, int ld, int rows) {
    constexpr int STEP = THREADS * PACK / COLS;
    static_assert(ROWS % STEP == 0, "every thread has equally many packs");
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP)
        copy_async(&X_smem[i * LD], i < rows ? &X[static_cast<int64_t>(i) * ld] : X, i < rows);
}

// shared -> registers: a warp's operands of one step. A's are FRAGS_M fragments of 16 x 8, B's are fragments of 8 x 8.
__device__ inline void load_operands(
    float (*A_rmem)[4], float (*B_rmem)[FRAGS_N], const float* A_smem, const float* B_smem, int k) {
    // TODO(1): A: ldmatrix moves 8 x 8 halves, that is 8 x 4 floats; four of them are a fragment. B: lane l needs rows
    //   l % 4 and l % 4 + 4. Column l / 4 of fragment n may be any column of the tile: load four in a pack. (~14 lines)
    // END TODO(1)
}

// x rounded to TF32: to nearest, ties away from zero.
__device__ inline unsigned to_tf32(float x) {
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(rounded) : "f"(x));
    return rounded;
}

// C_rmem += A_rmem @ B_rmem for fragments of 16 x 8, 8 x 8 and 16 x 8 (PTX ISA, "Matrix Fragments for mma.m16n8k8").
__device__ inline void mma(float* C_rmem, const unsigned* A_rmem, unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};\n"
        : "+f"(C_rmem[0]), "+f"(C_rmem[1]), "+f"(C_rmem[2]), "+f"(C_rmem[3])
        : "r"(A_rmem[0]), "r"(A_rmem[1]), "r"(A_rmem[2]), "r"(A_rmem[3]), "r"(b0), "r"(b1));
}

// Rounds the operands of one step and adds their products to this warp's fragments of C.
__device__ inline void compute_step(
    float (*C_rmem)[FRAGS_N][4], const float (*A_rmem)[4], const float (*B_rmem)[FRAGS_N]) {
    unsigned A_tf32[FRAGS_M][4];
    unsigned B_tf32[2][FRAGS_N];
#pragma unroll
    for (int i = 0; i < FRAGS_M * 4; ++i) A_tf32[i / 4][i % 4] = to_tf32(A_rmem[i / 4][i % 4]);
#pragma unroll
    for (int i = 0; i < 2 * FRAGS_N; ++i) B_tf32[i / FRAGS_N][i % FRAGS_N] = to_tf32(B_rmem[i / FRAGS_N][i % FRAGS_N]);
#pragma unroll
    for (int m = 0; m < FRAGS_M; ++m)
#pragma unroll
        for (int i = 0; i < FRAGS_N; ++i) {
            const int n = m % 2 == 0 ? i : FRAGS_N - 1 - i;  // there and back: two consecutive ones share an operand
            mma(C_rmem[m][n], A_tf32[m], B_tf32[0][n], B_tf32[1][n]);
        }
}

__global__ void __launch_bounds__(THREADS) sgemm_mma_m16n8k8_mma2x4_warp4x8_stages_rbuf_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(128) extern __shared__ float A_smem[];  // [STAGES][BLOCK_M][LD_A]
    float* B_smem = &A_smem[STAGES * A_WORDS];      // [STAGES][BLOCK_K][LD_B]
    // This block's BLOCK_M x BLOCK_N tile of C. Blocks go through C in strips of STRIP tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t strip_tiles = static_cast<int64_t>(STRIP) * tiles_m;
    const int strip = static_cast<int>(blockIdx.x / strip_tiles);
    const int in_strip = static_cast<int>(blockIdx.x % strip_tiles);
    const int width = min(STRIP, tiles_n - strip * STRIP);
    const int64_t off_m = static_cast<int64_t>(in_strip / width) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(strip * STRIP + in_strip % width) * BLOCK_N;
    const int warp_id = threadIdx.x / 32;
    const int lane_id = threadIdx.x % 32;
    const int warp_m = warp_id / WARPS_N * WARP_M;
    const int warp_n = warp_id % WARPS_N * WARP_N;
    // This thread's first packs of a tile of A and of a tile of B, and how much of the matrix is below and right of
    // them.
    const int a_m = threadIdx.x * PACK / BLOCK_K;
    const int a_k = threadIdx.x * PACK % BLOCK_K;
    const int b_k = threadIdx.x * PACK / BLOCK_N;
    const int b_n = threadIdx.x * PACK % BLOCK_N;
    const float* A_from = &A[off_m + a_m < M ? (off_m + a_m) * K : 0];
    const float* B_from = &B[off_n + b_n < N ? off_n + b_n : 0];
    const int a_rows = static_cast<int>(M - off_m) - a_m;
    const int b_rows = off_n + b_n < N ? K - b_k : 0;
    auto load_stage = [&](int tile, int stage) {
        const int64_t k = static_cast<int64_t>(tile) * BLOCK_K;
        const bool a_inside = k + a_k < K;
        const bool b_inside = k < b_rows;
        load_tile<BLOCK_M, BLOCK_K, LD_A>(
            &A_smem[stage * A_WORDS + a_m * LD_A + a_k], a_inside ? &A_from[k + a_k] : A, K, a_inside ? a_rows : 0);
        load_tile<BLOCK_K, BLOCK_N, LD_B>(
            &B_smem[stage * B_WORDS + b_k * LD_B + b_n], b_inside ? &B_from[(k + b_k) * N] : B, N,
            b_inside ? static_cast<int>(b_rows - k) : 0);
    };
    alignas(16) float A_rmem[2][FRAGS_M][4];
    alignas(16) float B_rmem[2][2][FRAGS_N];
    float C_rmem[FRAGS_M][FRAGS_N][4] = {};
    const int tiles = (K - 1) / BLOCK_K + 1;
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        if (tile < tiles) load_stage(tile, tile);
        commit_group();
    }
    wait_group<STAGES - 2>();
    // The first tile has arrived for this thread. After the barrier it has for all.
    __syncthreads();
    load_operands(A_rmem[0], B_rmem[0], &A_smem[warp_m * LD_A], &B_smem[warp_n], 0);
    int stage = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        // The previous tile was in the previous stage, and all are done with it.
        const int free_stage = stage == 0 ? STAGES - 1 : stage - 1;
        const int next_stage = stage == STAGES - 1 ? 0 : stage + 1;
        if (tile + STAGES - 1 < tiles) load_stage(tile + STAGES - 1, free_stage);
        // If no tile is left, an empty group keeps the count.
        commit_group();
#pragma unroll
        for (int step = 0; step < BLOCK_K / MMA_K; ++step) {
            // TODO(2): Load the operands of the next step into the set that is not multiplied now. After the last step,
            //   load the first step of the next tile, if there is one: by then it must have arrived for all.
            //   (~10 lines)
            // END TODO(2)
            compute_step(C_rmem, A_rmem[step % 2], B_rmem[step % 2]);
        }
        stage = next_stage;
    }
    // TODO(3): Store the sums that belong to C. Element i of a fragment is in row l / 4 + i / 2 * 8, and in column l %
    //   4 * 2 + i % 2 of the fragment. Four fragments hold a pack of four columns of the tile. (~12 lines)
    // END TODO(3)
}

KATA_EXPORT void sgemm_mma_m16n8k8_mma2x4_warp4x8_stages_rbuf(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const auto kernel = sgemm_mma_m16n8k8_mma2x4_warp4x8_stages_rbuf_kernel;
    // More than the default of 48 KB per block.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES);
    kernel<<<tiles_m * tiles_n, THREADS, SMEM_BYTES, stream>>>(A, B, C, M, N, K);
}
