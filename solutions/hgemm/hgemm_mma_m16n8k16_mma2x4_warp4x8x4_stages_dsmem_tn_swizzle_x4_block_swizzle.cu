// hgemm_mma_m16n8k16_mma2x4_warp4x8x4_stages_dsmem_tn_swizzle_x4_block_swizzle: C = A @ B^T on Tensor Cores, inline PTX
//
// Shapes     A: [M, K], B: [N, K], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  128x256 per block in strips of tiles, a ring of three slices of 64, two sets of fragments, both slices
//            swizzled (144 KB of shared memory per block: sm_86 and sm_89 have 99 KB and refuse the launch)
// New        over hgemm_mma_m16n8k16_mma2x4_warp4x8x4_stages_dsmem_swizzle_x4_block_swizzle: B is [N, K]; each step
//            copies a quarter of both tiles, so all steps have the same work
// Bound      Tensor Cores at the rate of mma.sync, and the GPU's power limit
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 16;
constexpr int WARPS_M = 2;
constexpr int WARPS_N = 4;
constexpr int TILES_M = 4;  // mma tiles per warp
constexpr int TILES_N = 8;
constexpr int TILES_K = 4;  // steps of MMA_K per slice
static_assert(TILES_K % 2 == 0, "every slice begins in set 0");
static_assert(TILES_N % 4 == 0, "four tiles side by side are stored together");
constexpr int WARP_M = TILES_M * MMA_M;
constexpr int WARP_N = TILES_N * MMA_N;
constexpr int BLOCK_M = WARPS_M * WARP_M;
constexpr int BLOCK_N = WARPS_N * WARP_N;
constexpr int BLOCK_K = TILES_K * MMA_K;
constexpr int STAGES = 3;       // slots in the ring
constexpr int PARTS = TILES_K;  // of a slice; each step copies one
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int CHUNK = 8;  // halves in one access of 16 bytes
constexpr int SMEM_BYTES = STAGES * (BLOCK_M * BLOCK_K + BLOCK_K * BLOCK_N) * int{sizeof(half)};

// shared -> registers: four 8x8 matrices. Lane l passes the address of row l % 8 of matrix l / 8. From each matrix it
// gets elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4 (PTX ISA, "Warp-level matrix load instruction: ldmatrix").
__device__ inline void ldmatrix_x4(uint32_t (&regs)[4], const half* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3])
                 : "r"(address)
                 : "memory");
}

// The same: the first two matrices go to left, the others to right.
__device__ inline void ldmatrix_x4(uint32_t (&left)[2], uint32_t (&right)[2], const half* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(left[0]), "=r"(left[1]), "=r"(right[0]), "=r"(right[1])
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

// Where the chunk that begins at column col is stored in its row of COLS halves in shared memory. ldmatrix reads eight
// chunks at a time, from eight rows at one column. Together they must cover each of the 32 banks once.
template <int COLS>
__device__ inline int swizzle(int row, int col) {
    int place = col;
    constexpr int LINE = 128 / sizeof(half);
    constexpr int ROWS = COLS < LINE ? LINE / COLS : 1;          // per line
    constexpr int CHUNKS = (COLS < LINE ? COLS : LINE) / CHUNK;  // of one row, per line
    place = col ^ row / ROWS % CHUNKS * CHUNK;
    return place;
}

// global -> shared: of a tile of ROWS rows and COLS columns the rows first to end - 1, 16 bytes at a time. first and
// end are multiples of STEP. rows and cols count what the matrix has from the tile's corner on. Elements outside the
// matrix count as 0.
template <int ROWS, int COLS>
__device__ inline void load_tile(
    half (&smem)[ROWS][COLS], const half* gmem, int ld, int rows, int cols, int first, int end) {
    constexpr int STEP = THREADS / (COLS / CHUNK);  // rows that the block copies at a time
    static_assert(THREADS % (COLS / CHUNK) == 0 && ROWS % STEP == 0, "a thread keeps to its column");
    const int row = threadIdx.x / (COLS / CHUNK);
    const int col = threadIdx.x % (COLS / CHUNK) * CHUNK;
    const half* from = gmem + int64_t{row} * ld + col;
    static_assert(STEP % 8 == 0, "a chunk STEP rows below has the same place in its row");
    const int place = swizzle<COLS>(row, col);
#pragma unroll
    for (int step = first; step < end; step += STEP)
        cp_async16(&smem[row + step][place], from + int64_t{step} * ld, row + step < rows && col < cols);
}

// shared -> registers: the fragments of step k of both slices for a warp's WARP_M x WARP_N tile of C.
__device__ inline void load_fragments(
    uint32_t (&A_rmem)[TILES_M][4], uint32_t (&B_rmem)[TILES_N][2], const half (&A_smem)[BLOCK_M][BLOCK_K],
    const half (&B_smem)[BLOCK_N][BLOCK_K], int warp_m, int warp_n, int k) {
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) {
        const int row = warp_m + m * MMA_M + lane_id % 16;
        ldmatrix_x4(A_rmem[m], &A_smem[row][swizzle<BLOCK_K>(row, k * MMA_K + lane_id / 16 * CHUNK)]);
    }
    // TODO(1): Load the fragments of B for two adjacent tiles with one ldmatrix.x4 without trans. The matrices are the
    //   upper tile's k 0 to 7 and 8 to 15, then those of the eight rows below. Each chunk is at its swizzled column,
    //   which repeats every eight rows. (~6 lines)
    const int row = warp_n + lane_id / 16 * MMA_N + lane_id % 8;
    const int place = swizzle<BLOCK_K>(row, k * MMA_K + lane_id / 8 % 2 * CHUNK);
#pragma unroll
    for (int n = 0; n < TILES_N; n += 2) ldmatrix_x4(B_rmem[n], B_rmem[n + 1], &B_smem[row + n * MMA_N][place]);
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

__global__ void __launch_bounds__(THREADS)
    hgemm_mma_m16n8k16_mma2x4_warp4x8x4_stages_dsmem_tn_swizzle_x4_block_swizzle_kernel(
        const half* __restrict__ A,  // [M, K]
        const half* __restrict__ B,  // [N, K]
        half* __restrict__ C,        // [M, N]
        int M, int N, int K) {
    // More than 48 KB of shared memory must be dynamic: the launch passes its size.
    extern __shared__ __align__(16) half smem[];
    const auto A_smem = reinterpret_cast<half(*)[BLOCK_M][BLOCK_K]>(smem);             // [STAGES]
    const auto B_smem = reinterpret_cast<half(*)[BLOCK_N][BLOCK_K]>(A_smem + STAGES);  // [STAGES]
    // This block's BLOCK_M x BLOCK_N tile of C. Offsets into a matrix are 64-bit: M, N and K fit int, their products
    // may not.
    int tile_m = 0;
    int tile_n = 0;
    constexpr int STRIP = 8;
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int first_n = blockIdx.x / (tiles_m * STRIP) * STRIP;
    const int width = min(STRIP, tiles_n - first_n);
    const int place = blockIdx.x - first_n * tiles_m;
    tile_m = place / width;
    tile_n = first_n + place % width;
    const int64_t off_m = int64_t{tile_m} * BLOCK_M;
    const int64_t off_n = int64_t{tile_n} * BLOCK_N;
    const int warp_id = threadIdx.x / 32;
    const int warp_m = warp_id / WARPS_N * WARP_M;
    const int warp_n = warp_id % WARPS_N * WARP_N;
    float C_rmem[TILES_M][TILES_N][4] = {};
    // The corners of the slice to copy next, and what is left of K from there on. Advancing a pointer costs less than
    // multiplying out an offset for each slice.
    const half* A_gmem = A + off_m * K;
    const half* B_gmem = B + off_n * K;
    int k_left = K;
    const auto load_part = [&](int stage, int part) {
        // TODO(2): Copy part number part of the PARTS parts of both tiles, B's in the order that it has in memory.
        //   (~3 lines)
        const int m_left = static_cast<int>(M - off_m), n_left = static_cast<int>(N - off_n);
        load_tile(A_smem[stage], A_gmem, K, m_left, k_left, part * BLOCK_M / PARTS, (part + 1) * BLOCK_M / PARTS);
        load_tile(B_smem[stage], B_gmem, K, n_left, k_left, part * BLOCK_N / PARTS, (part + 1) * BLOCK_N / PARTS);
        // END TODO(2)
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
                    mma_m16n8k16(C_rmem[m][n], A_rmem[k % 2][m], B_rmem[k % 2][n]);
                }
            }
        }
    }
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
        for (int n = 0; n < TILES_N; n += 4)
            store_tiles(C, &C_rmem[m][n], off_m + warp_m + m * MMA_M, off_n + warp_n + n * MMA_N, M, N);
    }
}

KATA_EXPORT void hgemm_mma_m16n8k16_mma2x4_warp4x8x4_stages_dsmem_tn_swizzle_x4_block_swizzle(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    // More than 48 KB must be requested.
    const auto kernel = hgemm_mma_m16n8k16_mma2x4_warp4x8x4_stages_dsmem_tn_swizzle_x4_block_swizzle_kernel;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES);
    kernel<<<tiles_m * tiles_n, THREADS, SMEM_BYTES, stream>>>(A, B, C, M, N, K);
}
