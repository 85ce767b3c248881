// w8a8_gemm_i8: C[m, n] = sa[m] * sb[n] * sum of A[m, k] * B[n, k] over k, weights and activations in 8 bits
//
// Shapes     A: [M, K], B: [N, K] int8, sa: [M], sb: [N] f32, C: [M, N] f16, row-major, contiguous, 16-byte aligned
//            bases, any M, N >= 1, K a multiple of 64, sums below 2^31
// Technique  128x256 per block in strips of tiles, a ring of three slices of 128, two sets of fragments, both slices
//            swizzled (144 KB of shared memory per block: sm_86 and sm_89 have 99 KB and refuse the launch)
// New        over hgemm_mma_m16n8k16_mma2x4_warp4x8x4_stages_dsmem_tn_swizzle_x4_block_swizzle: elements are bytes,
//            sums are exact integers, and scales come after them
// Bound      Tensor Cores at the rate of mma.sync
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 32;
constexpr int WARPS_M = 2;
constexpr int WARPS_N = 4;
constexpr int TILES_M = 4;  // mma tiles per warp
constexpr int TILES_N = 8;
constexpr int TILES_K = 4;  // steps of MMA_K per slice
static_assert(TILES_K % 2 == 0, "every slice begins in set 0");
constexpr int WARP_M = TILES_M * MMA_M;
constexpr int WARP_N = TILES_N * MMA_N;
constexpr int BLOCK_M = WARPS_M * WARP_M;
constexpr int BLOCK_N = WARPS_N * WARP_N;
constexpr int BLOCK_K = TILES_K * MMA_K;
constexpr int STAGES = 3;       // slots in the ring
constexpr int PARTS = TILES_K;  // of a slice; each step copies one
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int CHUNK = 16;  // int8 in one access of 16 bytes
constexpr int SMEM_BYTES = STAGES * (BLOCK_M + BLOCK_N) * BLOCK_K;

// shared -> registers: four 8x8 matrices of 16-bit elements. Lane l passes the address of row l % 8 of matrix l / 8.
// From each matrix it gets elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4 (PTX ISA, "Warp-level matrix load
// instruction: ldmatrix").
__device__ inline void ldmatrix_x4(uint32_t (&regs)[4], const int8_t* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3])
                 : "r"(address)
                 : "memory");
}

// The same: the first two matrices go to left, the others to right.
__device__ inline void ldmatrix_x4(uint32_t (&left)[2], uint32_t (&right)[2], const int8_t* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(left[0]), "=r"(left[1]), "=r"(right[0]), "=r"(right[1])
                 : "r"(address)
                 : "memory");
}

// c += a @ b for int8 a [16, 32] and b [32, 8], int c [16, 8]. PTX ISA, "Matrix Fragments for mma.m16n8k32", defines
// the fragments: a register of a or b has four adjacent k.
__device__ inline void mma_m16n8k32_s8(int (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// global -> shared: 16 bytes, without registers. They have arrived once a wait for their group returns. If inside is
// false, it reads nothing and writes zeros (PTX ISA, "cp.async": src-size).
__device__ inline void cp_async16(int8_t* smem, const int8_t* gmem, bool inside) {
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

// Where the chunk that begins at column col is stored in its row of BLOCK_K bytes in shared memory. ldmatrix reads
// eight chunks at a time, from eight rows at one column. Together they cover each of the 32 banks once.
__device__ inline int swizzle(int row, int col) {
    return col ^ row % 8 * CHUNK;
}

// global -> shared: rows first to end - 1 of a tile, 16 bytes at a time. first and end are multiples of STEP. rows and
// cols count what the matrix has from the tile's corner on. Elements outside the matrix count as 0.
template <int ROWS>
__device__ inline void load_rows(
    int8_t (&smem)[ROWS][BLOCK_K], const int8_t* gmem, int ld, int rows, int cols, int first, int end) {
    constexpr int STEP = THREADS / (BLOCK_K / CHUNK);  // rows that the block copies at a time
    static_assert(STEP % 8 == 0, "a chunk STEP rows below has the same place in its row");
    const int row = threadIdx.x / (BLOCK_K / CHUNK);
    const int col = threadIdx.x % (BLOCK_K / CHUNK) * CHUNK;
    const int8_t* from = gmem + int64_t{row} * ld + col;
    const int place = swizzle(row, col);
#pragma unroll
    for (int step = first; step < end; step += STEP)
        cp_async16(&smem[row + step][place], from + int64_t{step} * ld, row + step < rows && col < cols);
}

// shared -> registers: the fragments of step k of both slices for a warp's WARP_M x WARP_N tile of C.
__device__ inline void load_fragments(
    uint32_t (&A_rmem)[TILES_M][4], uint32_t (&B_rmem)[TILES_N][2], const int8_t (&A_smem)[BLOCK_M][BLOCK_K],
    const int8_t (&B_smem)[BLOCK_N][BLOCK_K], int warp_m, int warp_n, int k) {
    const int lane_id = threadIdx.x % 32;
    // TODO(1): Load the fragments of A with one ldmatrix.x4 per tile, those of B with one per two tiles. A row of an
    //   8x8 matrix is one chunk, and a step has two chunks. Each chunk is at its swizzled column. (~9 lines)
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) {
        const int row = warp_m + m * MMA_M + lane_id % 16;
        ldmatrix_x4(A_rmem[m], &A_smem[row][swizzle(row, k * MMA_K + lane_id / 16 * CHUNK)]);
    }
    const int row = warp_n + lane_id / 16 * MMA_N + lane_id % 8;
    const int place = swizzle(row, k * MMA_K + lane_id / 8 % 2 * CHUNK);
#pragma unroll
    for (int n = 0; n < TILES_N; n += 2) ldmatrix_x4(B_rmem[n], B_rmem[n + 1], &B_smem[row + n * MMA_N][place]);
    // END TODO(1)
}

// registers -> global: one mma tile, scaled and rounded once. A lane holds columns 2 * (lane_id % 4) and the next, in
// rows lane_id / 4 and lane_id / 4 + 8. sa and sb have the scales of these rows and columns, 0 outside of C.
__device__ inline void store_tile(
    half* C, const int (&c)[4], const float (&sa)[2], const float (&sb)[2], int64_t off_m, int off_n, int M, int N) {
    const int lane_id = threadIdx.x % 32;
    const int col = off_n + lane_id % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int64_t row = off_m + i * 8 + lane_id / 4;
        float2 pair = {0.0f, 0.0f};
        // TODO(2): The two elements of C of this row, as floats. (~2 lines)
        pair.x = static_cast<float>(c[2 * i]) * sa[i] * sb[0];
        pair.y = static_cast<float>(c[2 * i + 1]) * sa[i] * sb[1];
        // END TODO(2)
        if (row >= M || col >= N) continue;
        half* to = &C[row * N + col];
        // A row of an odd number of halves begins between multiples of 4 bytes.
        if (N % 2 == 0) {
            *reinterpret_cast<half2*>(to) = __float22half2_rn(pair);
        } else {
            to[0] = __float2half(pair.x);
            if (col + 1 < N) to[1] = __float2half(pair.y);
        }
    }
}

__global__ void __launch_bounds__(THREADS) w8a8_gemm_i8_kernel(
    const int8_t* __restrict__ A,  // [M, K]
    const int8_t* __restrict__ B,  // [N, K]
    const float* __restrict__ sa,  // [M]
    const float* __restrict__ sb,  // [N]
    half* __restrict__ C,          // [M, N]
    int M, int N, int K) {
    // More than 48 KB of shared memory must be dynamic: the launch passes its size.
    extern __shared__ __align__(16) int8_t smem[];
    const auto A_smem = reinterpret_cast<int8_t (*)[BLOCK_M][BLOCK_K]>(smem);             // [STAGES]
    const auto B_smem = reinterpret_cast<int8_t (*)[BLOCK_N][BLOCK_K]>(A_smem + STAGES);  // [STAGES]
    // Strips of STRIP tiles side by side: the blocks that run at the same time share rows of A and of B in L2.
    constexpr int STRIP = 8;
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int first_n = blockIdx.x / (tiles_m * STRIP) * STRIP;
    const int width = min(STRIP, tiles_n - first_n);
    const int place = blockIdx.x - first_n * tiles_m;
    const int off_m = place / width * BLOCK_M;
    const int off_n = (first_n + place % width) * BLOCK_N;
    const int lane_id = threadIdx.x % 32;
    const int warp_id = threadIdx.x / 32;
    const int warp_m = warp_id / WARPS_N * WARP_M;
    const int warp_n = warp_id % WARPS_N * WARP_N;
    int C_rmem[TILES_M][TILES_N][4] = {};
    // The corners of the slice to copy next, and what is left of K from there on.
    const int8_t* A_gmem = A + int64_t{off_m} * K;
    const int8_t* B_gmem = B + int64_t{off_n} * K;
    int k_left = K;
    const auto load_part = [&](int stage, int part) {
        load_rows(A_smem[stage], A_gmem, K, M - off_m, k_left, part * BLOCK_M / PARTS, (part + 1) * BLOCK_M / PARTS);
        load_rows(B_smem[stage], B_gmem, K, N - off_n, k_left, part * BLOCK_N / PARTS, (part + 1) * BLOCK_N / PARTS);
        if (part + 1 < PARTS) return;
        cp_async_commit();
        A_gmem += BLOCK_K;
        B_gmem += BLOCK_K;
        k_left -= BLOCK_K;
    };
    for (int stage = 0; stage < STAGES - 1; ++stage) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) load_part(stage, part);
    }
    const int slices = (K - 1) / BLOCK_K + 1;
    uint32_t A_rmem[2][TILES_M][4];  // step k of a slice is in set k % 2
    uint32_t B_rmem[2][TILES_N][2];
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // all threads' part of the first slice has arrived
    load_fragments(A_rmem[0], B_rmem[0], A_smem[0], B_smem[0], warp_m, warp_n, 0);
    int stage = 0;  // of the fragments to load next
    for (int slice = 0; slice < slices; ++slice) {
        const int to = stage == 0 ? STAGES - 1 : stage - 1;  // the stage of the previous slice
#pragma unroll
        for (int k = 0; k < TILES_K; ++k) {
            // TODO(3): Load the fragments of the next step, which after the last step is step 0 of the next slice: wait
            //   for it, and move on to its stage, where no thread may still need the one before. Copy part k of the
            //   slice after it to stage to. Multiply those of this step. (~18 lines)
            if (k + 1 == TILES_K) {
                // This thread's part of the next slice has arrived. The slice after it has no group yet.
                cp_async_wait<STAGES - 3>();
                __syncthreads();  // so has all threads' part, and all threads have loaded all of this slice
                stage = stage + 1 < STAGES ? stage + 1 : 0;  // cheaper than a remainder by three
            }
            const int next = (k + 1) % TILES_K;
            load_fragments(A_rmem[next % 2], B_rmem[next % 2], A_smem[stage], B_smem[stage], warp_m, warp_n, next);
            load_part(to, k);
#pragma unroll
            for (int n = 0; n < TILES_N; ++n) {
#pragma unroll
                for (int i = 0; i < TILES_M; ++i) {
                    // Down and up again: one operand stays from one mma.sync to the next.
                    const int m = n % 2 == 0 ? i : TILES_M - 1 - i;
                    mma_m16n8k32_s8(C_rmem[m][n], A_rmem[k % 2][m], B_rmem[k % 2][n]);
                }
            }
            // END TODO(3)
        }
    }
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
        for (int n = 0; n < TILES_N; ++n) {
            const int first_row = off_m + warp_m + m * MMA_M;
            const int first_col = off_n + warp_n + n * MMA_N;
            float sa_rmem[2] = {}, sb_rmem[2] = {};
            // TODO(4): Load the scales of this lane's two rows and two columns, where they exist. (~6 lines)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int row = first_row + i * 8 + lane_id / 4;
                const int col = first_col + lane_id % 4 * 2 + i;
                if (row < M) sa_rmem[i] = sa[row];
                if (col < N) sb_rmem[i] = sb[col];
            }
            // END TODO(4)
            store_tile(C, C_rmem[m][n], sa_rmem, sb_rmem, first_row, first_col, M, N);
        }
    }
}

KATA_EXPORT void w8a8_gemm_i8(
    const int8_t* A, const int8_t* B, const float* sa, const float* sb, half* C, int M, int N, int K,
    cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(w8a8_gemm_i8_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES);
    w8a8_gemm_i8_kernel<<<tiles_m * tiles_n, THREADS, SMEM_BYTES, stream>>>(A, B, sa, sb, C, M, N, K);
}
