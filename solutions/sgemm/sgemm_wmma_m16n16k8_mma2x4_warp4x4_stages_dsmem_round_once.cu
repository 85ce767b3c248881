// sgemm_wmma_m16n16k8_mma2x4_warp4x4_stages_dsmem_round_once: C = A @ B on Tensor Cores in TF32, rounded in smem
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f32, row-major, contiguous, bases of A and B 16-byte, of C 32-byte aligned
//            (required by store_matrix_sync), M and N multiples of 16, K of 4 and at most 2^31 - 32; each element of A
//            and B is first rounded to TF32: 11 significant bits, ties away from zero (80 KB of shared memory per
//            block)
// Technique  128x256x16 tiles, a ring of three in dynamic shared memory; 8 warps of 64x64; two sets of fragments
// New        over sgemm_wmma_m16n16k8_mma4x2_warp2x4_stages_block_swizzle: each element is rounded once per block, by
//            the thread that copied it; larger tiles; fragments are loaded one step ahead, and no check for the last
//            tile
// Bound      instructions: Tensor Cores in steps of 4 columns, rounding, and the loads around the products
#include "kata.cuh"
#include <cstdint>
#include <mma.h>

namespace wmma = nvcuda::wmma;

constexpr int MMA_M = 16;
constexpr int MMA_N = 16;
constexpr int MMA_K = 8;
constexpr int WARPS_M = 2;
constexpr int WARPS_N = 4;
constexpr int FRAGS_M = 4;  // of C, per warp
constexpr int FRAGS_N = 4;
constexpr int WARP_M = FRAGS_M * MMA_M;
constexpr int WARP_N = FRAGS_N * MMA_N;
constexpr int BLOCK_M = WARPS_M * WARP_M;
constexpr int BLOCK_N = WARPS_N * WARP_N;
constexpr int BLOCK_K = 16;
constexpr int STAGES = 3;  // tiles of A and of B in shared memory
constexpr int STRIP = 8;   // adjacent tiles of C that are computed at about the same time
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int PACK = 4;  // floats in 16 bytes
// Rows of A's tile begin an odd multiple of 4 banks apart: the 8 x 4 words of a fragment's part cover 32 banks.
constexpr int LD_A = BLOCK_K + 4;
// Rows of B's tile begin 8 banks apart: the 4 x 8 words of a fragment's part cover 32 banks.
constexpr int LD_B = BLOCK_N + 8;
constexpr int A_WORDS = BLOCK_M * LD_A;
constexpr int B_WORDS = BLOCK_K * LD_B;
constexpr int SMEM_BYTES = STAGES * (A_WORDS + B_WORDS) * 4;
static_assert(BLOCK_K / MMA_K % 2 == 0, "the first step of a tile is always in set 0");
constexpr int A_PACKS = BLOCK_M * BLOCK_K / PACK / THREADS;  // of a tile, per thread
constexpr int B_PACKS = BLOCK_K * BLOCK_N / PACK / THREADS;
static_assert(LD_A % 8 == 4 && LD_B % 32 == 8, "fragments are read without bank conflicts");

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

// global -> shared: starts to copy this thread's packs of a tile of COLS columns: one column of packs, every STEP rows.
// X points to the first one, and ld is the length of a row there. rows counts the rows from X on that are inside the
// matrix. Others count as 0.
template <int PACKS, int COLS, int LD>
__device__ inline void load_tile(float* X_smem, const float* X, int64_t ld, int rows) {
    constexpr int STEP = THREADS * PACK / COLS;
    static_assert(STEP * COLS == THREADS * PACK, "the block copies whole rows");
#pragma unroll
    for (int i = 0; i < PACKS; ++i) copy_async(&X_smem[i * STEP * LD], &X[i * STEP * ld], i * STEP < rows);
}

// shared -> shared: rounds to TF32 the packs that this thread has copied, once for all warps that will load them. The
// Tensor Core would drop the last 13 bits: a larger error, and always towards zero.
template <int PACKS, int COLS, int LD>
__device__ inline void round_tile(float* X_smem) {
    // TODO(1): Round this thread's packs in place. They are the packs that load_tile has copied, so the thread waits
    //   for no other thread, and each pack is rounded once. (~8 lines)
    constexpr int STEP = THREADS * PACK / COLS;
#pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        float4& pack = *reinterpret_cast<float4*>(&X_smem[i * STEP * LD]);
        pack = {
            wmma::__float_to_tf32(pack.x), wmma::__float_to_tf32(pack.y), wmma::__float_to_tf32(pack.z),
            wmma::__float_to_tf32(pack.w)};
    }
    // END TODO(1)
}

// shared -> registers: wmma::load_matrix_sync for an address that is known to be in shared memory. The compiler turns
// load_matrix_sync itself into loads that find the memory space at run time. wmma.load of the PTX ISA, 9.7.14.4.3.
__device__ inline void load_fragment(FragmentA& A_rmem, const float* A_smem) {
    unsigned x[4];
    asm volatile("wmma.load.a.sync.aligned.row.m16n16k8.shared.tf32 {%0, %1, %2, %3}, [%4], %5;\n"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(A_smem))), "n"(LD_A)
                 : "memory");
#pragma unroll
    for (int i = 0; i < 4; ++i) A_rmem.x[i] = __uint_as_float(x[i]);
}

__device__ inline void load_fragment(FragmentB& B_rmem, const float* B_smem) {
    unsigned x[4];
    asm volatile("wmma.load.b.sync.aligned.row.m16n16k8.shared.tf32 {%0, %1, %2, %3}, [%4], %5;\n"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(B_smem))), "n"(LD_B)
                 : "memory");
#pragma unroll
    for (int i = 0; i < 4; ++i) B_rmem.x[i] = __uint_as_float(x[i]);
}

// shared -> registers: this warp's fragments of columns k..k+MMA_K-1 of a tile of A and of the same rows of one of B.
__device__ inline void load_fragments(
    FragmentA* A_rmem, FragmentB* B_rmem, const float* A_smem, const float* B_smem, int k) {
#pragma unroll
    for (int m = 0; m < FRAGS_M; ++m) {
        load_fragment(A_rmem[m], &A_smem[m * MMA_M * LD_A + k]);
    }
#pragma unroll
    for (int n = 0; n < FRAGS_N; ++n) {
        load_fragment(B_rmem[n], &B_smem[k * LD_B + n * MMA_N]);
    }
}

// registers -> registers: adds the product of each fragment of A with each of B to a fragment of C.
__device__ inline void multiply(FragmentC (*C_rmem)[FRAGS_N], const FragmentA* A_rmem, const FragmentB* B_rmem) {
#pragma unroll
    for (int m = 0; m < FRAGS_M; ++m)
#pragma unroll
        for (int n = 0; n < FRAGS_N; ++n) wmma::mma_sync(C_rmem[m][n], A_rmem[m], B_rmem[n], C_rmem[m][n]);
}

__global__ void __launch_bounds__(THREADS, 1) sgemm_wmma_m16n16k8_mma2x4_warp4x4_stages_dsmem_round_once_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    extern __shared__ __align__(128) float A_smem[];  // [STAGES][BLOCK_M][LD_A]
    float* B_smem = &A_smem[STAGES * A_WORDS];        // [STAGES][BLOCK_K][LD_B]
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
    const int warp_m = threadIdx.x / 32 / WARPS_N * WARP_M;  // this warp's part of the tile
    const int warp_n = threadIdx.x / 32 % WARPS_N * WARP_N;
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
    // A tile that begins after the last column of A is all zeros.
    auto load_stage = [&](int tile, int stage) {
        const int k = tile * BLOCK_K;
        load_tile<A_PACKS, BLOCK_K, LD_A>(
            &A_smem[stage * A_WORDS + a_m * LD_A + a_k], &A_from[k], K, k + a_k < K ? a_rows : 0);
        load_tile<B_PACKS, BLOCK_N, LD_B>(
            &B_smem[stage * B_WORDS + b_k * LD_B + b_n], &B_from[static_cast<int64_t>(k) * N], N, b_rows - k);
    };
    auto round_stage = [&](int stage) {
        round_tile<A_PACKS, BLOCK_K, LD_A>(&A_smem[stage * A_WORDS + a_m * LD_A + a_k]);
        round_tile<B_PACKS, BLOCK_N, LD_B>(&B_smem[stage * B_WORDS + b_k * LD_B + b_n]);
    };
    FragmentC C_rmem[FRAGS_M][FRAGS_N];
#pragma unroll
    for (int i = 0; i < FRAGS_M * FRAGS_N; ++i) wmma::fill_fragment(C_rmem[i / FRAGS_N][i % FRAGS_N], 0.0f);
    const int tiles = (K - 1) / BLOCK_K + 1;
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        load_stage(tile, tile);
        commit_group();
    }
    FragmentA A_rmem[2][FRAGS_M];
    FragmentB B_rmem[2][FRAGS_N];
    wait_group<STAGES - 2>();
    round_stage(0);
    // This thread's part of the first tile has arrived and is rounded. After the barrier the whole tile is.
    __syncthreads();
    load_fragments(A_rmem[0], B_rmem[0], &A_smem[warp_m * LD_A], &B_smem[warp_n], 0);
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
            // TODO(2): Load the fragments of the next step into the set that is not multiplied now. After the last
            //   step, load the first step of the next tile: by then it must have arrived and be rounded for all.
            //   (~11 lines)
            const int next = (step + 1) % 2;
            if (step + 1 < BLOCK_K / MMA_K) {
                load_fragments(
                    A_rmem[next], B_rmem[next], &A_smem[stage * A_WORDS + warp_m * LD_A],
                    &B_smem[stage * B_WORDS + warp_n], (step + 1) * MMA_K);
            } else {
                // The next tile has arrived and is rounded, for all. All hold what they need of this one.
                __syncthreads();
                load_fragments(
                    A_rmem[next], B_rmem[next], &A_smem[next_stage * A_WORDS + warp_m * LD_A],
                    &B_smem[next_stage * B_WORDS + warp_n], 0);
            }
            // END TODO(2)
            multiply(C_rmem, A_rmem[step % 2], B_rmem[step % 2]);
            // TODO(3): Round this thread's packs of the next tile: once, after they have arrived, before the barrier
            //   above, and where products are left to hide it. (~4 lines)
            if (step == 0) {
                // Only this thread's copies of the next tile must have arrived: it rounds no others.
                wait_group<STAGES - 2>();
                round_stage(next_stage);
            }
            // END TODO(3)
        }
        stage = next_stage;
    }
#pragma unroll
    for (int i = 0; i < FRAGS_M * FRAGS_N; ++i) {
        const int64_t row = off_m + warp_m + i / FRAGS_N * MMA_M;
        const int64_t col = off_n + warp_n + i % FRAGS_N * MMA_N;
        if (row < M && col < N)
            wmma::store_matrix_sync(&C[row * N + col], C_rmem[i / FRAGS_N][i % FRAGS_N], N, wmma::mem_row_major);
    }
}

KATA_EXPORT void sgemm_wmma_m16n16k8_mma2x4_warp4x4_stages_dsmem_round_once(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const auto kernel = sgemm_wmma_m16n16k8_mma2x4_warp4x4_stages_dsmem_round_once_kernel;
    // More than the default of 48 KB per block.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES);
    kernel<<<tiles_m * tiles_n, THREADS, SMEM_BYTES, stream>>>(A, B, C, M, N, K);
}
