// fp8_block_gemm: C[m, n] = sum over blocks b of K of sa[b, m] * sb[n / 128, b] * (sum of A[m, k] * B[n, k] over b's k)
//
// Shapes     A: [M, K], B: [N, K] e4m3, sa: [K / 128, M], sb: [N / 128, K / 128] f32, C: [M, N] bf16, row-major,
//            contiguous, 16-byte aligned bases, any M >= 1, N = 128 * blocks_n, K = 128 * blocks_k
// Technique  up to 64 rows by 256 columns per block, a ring of slices of 128, both slices swizzled; bytes become halves
//            on the way to mma.sync
// New        over w8a8_gemm_i8: scales change along K, so the sum of each 128 k is scaled and added in float
// Bound      memory bandwidth with few rows
#include "kata.cuh"
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

constexpr int WARP_SIZE = 32;
constexpr int WARPS = 8;
constexpr int THREADS = WARPS * WARP_SIZE;
constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int STEP_K = 32;  // bytes of K in the fragments of one ldmatrix: two mma.sync of 16 halves
constexpr int TILES_N = 4;  // mma tiles per warp, side by side
constexpr int WARP_N = TILES_N * MMA_N;
constexpr int BLOCK_N = WARPS * WARP_N;
constexpr int SCALED = 128;  // k, and columns of C, that share a scale: the K of a slice
constexpr int STEPS = SCALED / STEP_K;
constexpr int STAGES = 2;  // slots in the ring
constexpr int CHUNK = 16;  // bytes in one access

// What a stage of the ring holds: a slice of A and of B, and the scales of its block of K.
template <int ROWS>
struct alignas(16) Slice {
    uint8_t A[ROWS][SCALED];
    uint8_t B[BLOCK_N][SCALED];
    float sa[ROWS];
    float sb[BLOCK_N / SCALED];
};

// shared -> registers: four 8x8 matrices of 16-bit elements. Lane l passes the address of row l % 8 of matrix l / 8.
// From each matrix it gets elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4 (PTX ISA, "Warp-level matrix load
// instruction: ldmatrix").
__device__ inline void ldmatrix_x4(uint32_t (&regs)[4], const uint8_t* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3])
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
__device__ inline void cp_async16(void* smem, const void* gmem, bool inside) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
    const size_t from = __cvta_generic_to_global(gmem);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

// The same with 4 bytes.
__device__ inline void cp_async4(void* smem, const void* gmem, bool inside) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
    const size_t from = __cvta_generic_to_global(gmem);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(inside ? 4 : 0) : "memory");
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

// Where the chunk that begins at column col is stored in its row of SCALED bytes in shared memory. ldmatrix reads eight
// chunks at a time, from eight rows at one column. Together they cover each of the 32 banks once.
__device__ inline int swizzle(int row, int col) {
    return col ^ row % 8 * CHUNK;
}

// The e4m3 in bytes 0 and 1 of word, as halves in lower, those in bytes 2 and 3 in upper. It is exact.
__device__ __forceinline__ void widen(uint32_t& lower, uint32_t& upper, uint32_t word) {
    asm("{\n\t"
        ".reg .b16 low, high;\n\t"
        "mov.b32 {low, high}, %2;\n\t"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n\t"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n\t"
        "}"
        : "=r"(lower), "=r"(upper)
        : "r"(word));
}

// global -> shared: a slice of ROWS rows, 16 bytes at a time. rows counts what the matrix has from the first one on.
// Rows past it count as 0.
template <int ROWS>
__device__ inline void load_rows(uint8_t (&smem)[ROWS][SCALED], const __nv_fp8_e4m3* gmem, int64_t ld, int rows) {
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * SCALED / CHUNK; i += THREADS) {
        const int row = i / (SCALED / CHUNK), col = i % (SCALED / CHUNK) * CHUNK;
        const bool inside = row < rows;
        cp_async16(&smem[row][swizzle(row, col)], gmem + (inside ? row : 0) * ld + col, inside);
    }
}

template <int TILES_M>
__global__ void __launch_bounds__(THREADS, TILES_M < 4 ? 2 : 1) fp8_block_gemm_kernel(
    const __nv_fp8_e4m3* __restrict__ A,  // [M, K]
    const float* __restrict__ sa,         // [blocks_k, M]
    const __nv_fp8_e4m3* __restrict__ B,  // [N, K]
    const float* __restrict__ sb,         // [blocks_n, blocks_k]
    __nv_bfloat16* __restrict__ C,        // [M, N]
    int M, int blocks_n, int blocks_k) {
    constexpr int ROWS = TILES_M * MMA_M;
    // More than 48 KB of shared memory must be dynamic: the launch passes its size.
    extern __shared__ __align__(16) unsigned char smem[];
    const auto ring = reinterpret_cast<Slice<ROWS>*>(smem);  // [STAGES]
    const int tid = threadIdx.x;
    const int lane_id = tid % WARP_SIZE;
    const int warp_n = tid / WARP_SIZE * WARP_N;
    const int tiles_m = (M - 1) / ROWS + 1;
    const int off_m = blockIdx.x % tiles_m * ROWS;
    const int off_n = blockIdx.x / tiles_m * BLOCK_N;
    const int N = blocks_n * SCALED;
    const int64_t K = int64_t{blocks_k} * SCALED;
    // Starts the copies of a slice as one group: empty past the last.
    const auto load_slice = [&](int block) {
        if (block < blocks_k) {
            Slice<ROWS>& slice = ring[block % STAGES];
            load_rows(slice.A, A + off_m * K + block * SCALED, K, M - off_m);
            load_rows(slice.B, B + off_n * K + block * SCALED, K, N - off_n);
            // TODO(1): global -> shared: the scales of this block of K, for the rows and for the columns. Those past
            //   the end of C count as 0. (~5 lines)
            const int row = off_m + tid, block_n = off_n / SCALED + tid;
            const bool is_row = row < M, is_block = block_n < blocks_n;
            if (tid < ROWS) cp_async4(&slice.sa[tid], sa + int64_t{block} * M + (is_row ? row : 0), is_row);
            if (tid < BLOCK_N / SCALED)
                cp_async4(&slice.sb[tid], sb + int64_t{is_block ? block_n : 0} * blocks_k + block, is_block);
            // END TODO(1)
        }
        cp_async_commit();
    };
    float C_rmem[TILES_M][TILES_N][4] = {};
    for (int i = 0; i < STAGES - 1; ++i) load_slice(i);
    for (int block = 0; block < blocks_k; ++block) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // all threads' part has arrived, and all threads are done with the slice before
        load_slice(block + STAGES - 1);
        const Slice<ROWS>& slice = ring[block % STAGES];
        float partial[TILES_M][TILES_N][4] = {};  // of this block of K
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            uint32_t A_rmem[2][TILES_M][4];
            uint32_t B_rmem[2][TILES_N][2];
            // TODO(2): Load the bytes of both fragments, and widen them to the fragments of two mma.sync each. A
            //   register of a lane has four adjacent k. Any order of the k is right if it is the same for A and B.
            //   (~22 lines)
#pragma unroll
            for (int m = 0; m < TILES_M; ++m) {
                uint32_t bytes[4];  // rows 0 to 7 and 8 to 15 of the first 16 k, then of the last
                const int row = m * MMA_M + lane_id % 16;
                ldmatrix_x4(bytes, &slice.A[row][swizzle(row, step * STEP_K + lane_id / 16 * CHUNK)]);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    widen(A_rmem[i][m][0], A_rmem[i][m][2], bytes[2 * i]);
                    widen(A_rmem[i][m][1], A_rmem[i][m][3], bytes[2 * i + 1]);
                }
            }
#pragma unroll
            for (int n = 0; n < TILES_N; n += 2) {
                uint32_t bytes[4];  // the first and the last 16 k of tile n, then of tile n + 1
                const int row = warp_n + n * MMA_N + lane_id / 16 * MMA_N + lane_id % 8;
                ldmatrix_x4(bytes, &slice.B[row][swizzle(row, step * STEP_K + lane_id / 8 % 2 * CHUNK)]);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    widen(B_rmem[i][n][0], B_rmem[i][n][1], bytes[i]);
                    widen(B_rmem[i][n + 1][0], B_rmem[i][n + 1][1], bytes[2 + i]);
                }
            }
            // END TODO(2)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
#pragma unroll
                for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
                    for (int n = 0; n < TILES_N; ++n) mma_m16n8k16(partial[m][n], A_rmem[i][m], B_rmem[i][n]);
                }
            }
        }
        const float scale_n = slice.sb[warp_n / SCALED];
#pragma unroll
        for (int m = 0; m < TILES_M; ++m) {
            // TODO(3): Add the block's sums to those of the blocks before, each times the scales of its row and column.
            //   A lane has rows lane_id / 4 and lane_id / 4 + 8 of an mma tile. (~7 lines)
            const float low = slice.sa[m * MMA_M + lane_id / 4] * scale_n;
            const float high = slice.sa[m * MMA_M + lane_id / 4 + 8] * scale_n;
#pragma unroll
            for (int n = 0; n < TILES_N; ++n) {
#pragma unroll
                for (int i = 0; i < 4; ++i) C_rmem[m][n][i] += (i < 2 ? low : high) * partial[m][n][i];
            }
            // END TODO(3)
        }
    }
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = off_m + m * MMA_M + i * 8 + lane_id / 4;
#pragma unroll
            for (int n = 0; n < TILES_N; ++n) {
                const int col = off_n + warp_n + n * MMA_N + lane_id % 4 * 2;
                // TODO(4): Store the two columns of the row, if both exist. (~3 lines)
                if (row < M && col < N)
                    *reinterpret_cast<__nv_bfloat162*>(&C[int64_t{row} * N + col]) =
                        __floats2bfloat162_rn(C_rmem[m][n][2 * i], C_rmem[m][n][2 * i + 1]);
                // END TODO(4)
            }
        }
    }
}

template <int TILES_M>
void launch(
    const __nv_fp8_e4m3* A, const float* sa, const __nv_fp8_e4m3* B, const float* sb, __nv_bfloat16* C, int M,
    int blocks_n, int blocks_k, cudaStream_t stream) {
    constexpr int BYTES = STAGES * int{sizeof(Slice<TILES_M * MMA_M>)};
    const auto kernel = fp8_block_gemm_kernel<TILES_M>;
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    const int tiles_m = (M - 1) / (TILES_M * MMA_M) + 1;
    const int tiles_n = (blocks_n * SCALED - 1) / BLOCK_N + 1;
    kernel<<<tiles_m * tiles_n, THREADS, BYTES, stream>>>(A, sa, B, sb, C, M, blocks_n, blocks_k);
}

KATA_EXPORT void fp8_block_gemm(
    const __nv_fp8_e4m3* A, const float* sa, const __nv_fp8_e4m3* B, const float* sb, __nv_bfloat16* C, int M,
    int blocks_n, int blocks_k, cudaStream_t stream) {
    if (M <= MMA_M) {
        launch<1>(A, sa, B, sb, C, M, blocks_n, blocks_k, stream);
    } else if (M <= 2 * MMA_M) {
        launch<2>(A, sa, B, sb, C, M, blocks_n, blocks_k, stream);
    } else {
        launch<4>(A, sa, B, sb, C, M, blocks_n, blocks_k, stream);
    }
}
