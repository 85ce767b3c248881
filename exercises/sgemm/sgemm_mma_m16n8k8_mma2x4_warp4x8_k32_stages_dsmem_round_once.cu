// sgemm_mma_m16n8k8_mma2x4_warp4x8_k32_stages_dsmem_round_once: C = A @ B in TF32 by mma.sync, rounded in shared memory
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f32, row-major, contiguous, 16-byte aligned bases, N and K multiples of 4,
//            K at most 2^31 - 64; each element of A and B is first rounded to TF32: 11 significant bits, ties away from
//            zero (153 KB of shared memory per block: sm_86 and sm_89 have 99 KB and refuse the launch)
// Technique  128x256x32 tiles, a ring of three in shared memory; 8 warps of 64x64; two sets of operands in registers
// New        over sgemm_mma_m16n8k8_mma2x4_warp4x8_stages_rbuf: each element is rounded once per block, by the thread
//            that copied it; B in words, so that a product's two registers are adjacent; no check for the last tile
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
constexpr int BLOCK_K = 32;
constexpr int STAGES = 3;  // tiles of A and of B in shared memory
constexpr int STRIP = 8;   // adjacent tiles of C that are computed at about the same time
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int PACK = 4;  // floats in 16 bytes
constexpr int LD_A =
    BLOCK_K + 4;  // rows of A's tile begin 36 words apart: eight packs in one column together cover all 32 banks
constexpr int LD_B = BLOCK_N + 8;  // rows of B's tile begin 8 banks apart: eight words in each of four rows cover them
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
    for (int i = 0; i < ROWS; i += STEP) copy_async(&X_smem[i * LD], &X[static_cast<int64_t>(i) * ld], i < rows);
}

// x rounded to TF32: to nearest, ties away from zero.
__device__ inline float to_tf32(float x) {
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(rounded) : "f"(x));
    return __uint_as_float(rounded);
}

// shared -> shared: rounds the packs that this thread has copied, once for all warps that will load them.
template <int ROWS, int COLS, int LD>
__device__ inline void round_tile(float* X_smem) {
    // TODO(1): Round this thread's packs in place. They are the packs that load_tile has copied, so the thread waits
    //   for no other thread, and each pack is rounded once. (~5 lines)
    // END TODO(1)
}

// shared -> registers: a warp's operands of one step. A's are FRAGS_M fragments of 16 x 8, B's are fragments of 8 x 8.
__device__ inline void load_operands(
    float (*A_rmem)[4], float (*B_rmem)[2], const float* A_smem, const float* B_smem, int k) {
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < FRAGS_M; ++m) {
        // Lanes 0-15 pass the rows of the left half, lanes 16-31 those of the right half (PTX ISA, "ldmatrix").
        const float* from = &A_smem[(m * MMA_M + lane_id % 16) * LD_A + k + lane_id / 16 * 4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                     : "=f"(A_rmem[m][0]), "=f"(A_rmem[m][1]), "=f"(A_rmem[m][2]), "=f"(A_rmem[m][3])
                     : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from)))
                     : "memory");
    }
    // TODO(2): Lane l needs rows l % 4 and l % 4 + 4 of column l / 4 of each fragment of B. A product reads the two
    //   from adjacent registers. (~4 lines)
    // END TODO(2)
}

// C_rmem += A_rmem @ B_rmem for fragments of 16 x 8, 8 x 8 and 16 x 8 (PTX ISA, "Matrix Fragments for mma.m16n8k8").
__device__ inline void mma(float* C_rmem, const float* A_rmem, float b0, float b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};\n"
        : "+f"(C_rmem[0]), "+f"(C_rmem[1]), "+f"(C_rmem[2]), "+f"(C_rmem[3])
        : "r"(__float_as_uint(A_rmem[0])), "r"(__float_as_uint(A_rmem[1])), "r"(__float_as_uint(A_rmem[2])),
          "r"(__float_as_uint(A_rmem[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

// Adds the products of the operands of one step to this warp's fragments of C.
__device__ inline void compute_step(float (*C_rmem)[FRAGS_N][4], const float (*A_rmem)[4], const float (*B_rmem)[2]) {
#pragma unroll
    for (int m = 0; m < FRAGS_M; ++m)
#pragma unroll
        for (int i = 0; i < FRAGS_N; ++i) {
            const int n = m % 2 == 0 ? i : FRAGS_N - 1 - i;  // there and back: two consecutive ones share an operand
            mma(C_rmem[m][n], A_rmem[m], B_rmem[n][0], B_rmem[n][1]);
        }
}

__global__ void __launch_bounds__(THREADS) sgemm_mma_m16n8k8_mma2x4_warp4x8_k32_stages_dsmem_round_once_kernel(
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
    const float* A_from = &A[(off_m + a_m) * K + a_k];
    const float* B_from = &B[b_k * static_cast<int64_t>(N) + off_n + b_n];
    const int a_rows = static_cast<int>(M - off_m) - a_m;
    const int b_rows = off_n + b_n < N ? K - b_k : 0;
    auto load_stage = [&](int tile, int stage) {
        const int k = tile * BLOCK_K;
        load_tile<BLOCK_M, BLOCK_K, LD_A>(
            &A_smem[stage * A_WORDS + a_m * LD_A + a_k], &A_from[k], K, k + a_k < K ? a_rows : 0);
        load_tile<BLOCK_K, BLOCK_N, LD_B>(
            &B_smem[stage * B_WORDS + b_k * LD_B + b_n], &B_from[static_cast<int64_t>(k) * N], N, b_rows - k);
    };
    auto round_stage = [&](int stage) {
        round_tile<BLOCK_M, BLOCK_K, LD_A>(&A_smem[stage * A_WORDS + a_m * LD_A + a_k]);
        round_tile<BLOCK_K, BLOCK_N, LD_B>(&B_smem[stage * B_WORDS + b_k * LD_B + b_n]);
    };
    alignas(16) float A_rmem[2][FRAGS_M][4];
    alignas(16) float B_rmem[2][FRAGS_N][2];
    float C_rmem[FRAGS_M][FRAGS_N][4] = {};
    const int tiles = (K - 1) / BLOCK_K + 1;
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        load_stage(tile, tile);
        commit_group();
    }
    wait_group<STAGES - 2>();
    round_stage(0);
    // This thread's part of the first tile has arrived and is rounded. After the barrier the whole tile is.
    __syncthreads();
    load_operands(A_rmem[0], B_rmem[0], &A_smem[warp_m * LD_A], &B_smem[warp_n], 0);
    int stage = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        // The previous tile was in the previous stage, and all are done with it.
        const int free_stage = stage == 0 ? STAGES - 1 : stage - 1;
        const int next_stage = stage == STAGES - 1 ? 0 : stage + 1;
        // After the last tile come tiles of zeros: no check is needed, and the groups keep their count.
        load_stage(tile + STAGES - 1, free_stage);
        commit_group();
#pragma unroll
        for (int step = 0; step < BLOCK_K / MMA_K; ++step) {
            // TODO(3): Load the operands of the next step into the set that is not multiplied now. After the last step,
            //   load the first step of the next tile: by then it must have arrived and be rounded for all. (~11 lines)
            // END TODO(3)
            compute_step(C_rmem, A_rmem[step % 2], B_rmem[step % 2]);
            // TODO(4): Round this thread's packs of the next tile: once, after they have arrived, before the barrier
            //   above, and where products are left to hide it. (~4 lines)
            // END TODO(4)
        }
        stage = next_stage;
    }
    // TODO(5): Store the sums that belong to C. Elements 2i and 2i + 1 of a fragment are in row l / 4 + i * 8, and in
    //   columns l % 4 * 2 and l % 4 * 2 + 1 of the fragment. (~10 lines)
    // END TODO(5)
}

KATA_EXPORT void sgemm_mma_m16n8k8_mma2x4_warp4x8_k32_stages_dsmem_round_once(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const auto kernel = sgemm_mma_m16n8k8_mma2x4_warp4x8_k32_stages_dsmem_round_once_kernel;
    // More than the default of 48 KB per block.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES);
    kernel<<<tiles_m * tiles_n, THREADS, SMEM_BYTES, stream>>>(A, B, C, M, N, K);
}
