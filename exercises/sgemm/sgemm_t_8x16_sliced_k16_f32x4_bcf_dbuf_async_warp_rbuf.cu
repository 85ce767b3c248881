// sgemm_t_8x16_sliced_k16_f32x4_bcf_dbuf_async_warp_rbuf: C = A @ B, 8 x 16 elements of C per thread, 128-bit accesses
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f32, row-major, contiguous, 16-byte aligned bases, N and K multiples of 4
// Technique  128x256x16 tiles; a thread holds the operands of two k: one is multiplied while the next is loaded
// New        over sgemm_t_8x16_sliced_k16_f32x4_bcf_dbuf_async_warp: two buffers in registers too, also across the
//            barrier
// Bound      registers: many multiply-adds read three operands from the same bank of the register file
#include "kata.cuh"
#include <cstdint>

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 256;
constexpr int BLOCK_K = 16;
constexpr int THREAD_M = 8;   // rows of C per thread
constexpr int THREAD_N = 16;  // columns of C per thread
constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
constexpr int PACK = 4;    // floats in 16 bytes
constexpr int STEP_M = 4;  // lanes along M: a thread's packs of rows are PACK * STEP_M apart
constexpr int STEP_N = 8;  // and its packs of columns PACK * STEP_N
constexpr int WARP_M = STEP_M * THREAD_M;
constexpr int WARP_N = STEP_N * THREAD_N;
constexpr int WARPS_N = BLOCK_N / WARP_N;
static_assert(BLOCK_K % 2 == 0, "the first k of a slice is always in buffer 0");
static_assert(STEP_M * STEP_N == 32, "a warp's lanes");

// The column in A_smem[k] of element m of slice k of A's tile. Slices 0-3, 4-7, 8-11 and 12-15 differ in which 8 of 32
// banks come first. Packs remain whole and aligned.
__device__ inline int swizzle(int k, int m) {
    int place = m;
    place ^= k / PACK % 4 * 8;
    return place;
}

// The PACK floats at x, which is 16-byte aligned: one 128-bit access.
__device__ inline float4& pack_at(float* x) {
    return *reinterpret_cast<float4*>(x);
}

__device__ inline const float4& pack_at(const float* x) {
    return *reinterpret_cast<const float4*>(x);
}

// global -> registers: this thread's packs of the tile of X, a matrix of rows x cols, that begins at (off_row,
// off_col). Elements outside X count as 0. A pack is wholly inside or wholly outside: cols is a multiple of 4.
template <int ROWS, int COLS>
__device__ inline void fetch_tile(
    float4* X_rmem, const float* X, int64_t off_row, int64_t off_col, int rows, int cols) {
    static_assert(ROWS * COLS % (THREADS * PACK) == 0, "every thread has equally many packs");
#pragma unroll
    for (int i = 0; i < ROWS * COLS; i += THREADS * PACK) {
        const int row = (i + threadIdx.x * PACK) / COLS;
        const int col = (i + threadIdx.x * PACK) % COLS;
        float4 pack = {};
        if (off_row + row < rows && off_col + col < cols) pack = pack_at(&X[(off_row + row) * cols + off_col + col]);
        X_rmem[i / (THREADS * PACK)] = pack;
    }
}

// global -> shared: starts to copy the packs of a tile that fetch_tile would fetch, without registers: cp.async of the
// PTX ISA, 9.7.9.25.3.1. For a pack outside X it reads no byte and writes 16 zeros.
template <int ROWS, int COLS>
__device__ inline void copy_tile_async(
    float (*X_smem)[COLS], const float* X, int64_t off_row, int64_t off_col, int rows, int cols) {
    static_assert(ROWS * COLS % (THREADS * PACK) == 0, "every thread has equally many packs");
#pragma unroll
    for (int i = 0; i < ROWS * COLS; i += THREADS * PACK) {
        const int row = (i + threadIdx.x * PACK) / COLS;
        const int col = (i + threadIdx.x * PACK) % COLS;
        const bool inside = off_row + row < rows && off_col + col < cols;
        const float* from = inside ? &X[(off_row + row) * cols + off_col + col] : X;
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&X_smem[row][col]));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(inside ? 16 : 0)
                     : "memory");
    }
}

// Waits for all copies that this thread has started (9.7.9.25.3.3).
__device__ inline void wait_all() {
    asm volatile("cp.async.wait_all;\n" ::: "memory");
}

// registers -> shared, transposed: the same into X_smem[col][row], swizzled.
template <int ROWS, int COLS>
__device__ inline void stage_tile_transposed(float (*X_smem)[ROWS], const float4* X_rmem) {
#pragma unroll
    for (int i = 0; i < ROWS * COLS; i += THREADS * PACK) {
        const int row = (i + threadIdx.x * PACK) / COLS;
        const int col = (i + threadIdx.x * PACK) % COLS;
        const float4 pack = X_rmem[i / (THREADS * PACK)];
        // Four lanes share a row of X. swizzle puts the 32 words of a warp's store into 32 banks.
        X_smem[col + 0][swizzle(col, row)] = pack.x;
        X_smem[col + 1][swizzle(col, row)] = pack.y;
        X_smem[col + 2][swizzle(col, row)] = pack.z;
        X_smem[col + 3][swizzle(col, row)] = pack.w;
    }
}

// shared -> registers: this thread's operands of one k.
__device__ inline void load_operands(
    float* A_rmem, float* B_rmem, const float (*A_smem)[BLOCK_M], const float (*B_smem)[BLOCK_N], int k, int thread_m,
    int thread_n) {
#pragma unroll
    for (int m = 0; m < THREAD_M; m += PACK)
        pack_at(&A_rmem[m]) = pack_at(&A_smem[k][swizzle(k, thread_m + m * STEP_M)]);
#pragma unroll
    for (int n = 0; n < THREAD_N; n += PACK) pack_at(&B_rmem[n]) = pack_at(&B_smem[k][thread_n + n * STEP_N]);
}

__global__ void __launch_bounds__(THREADS) sgemm_t_8x16_sliced_k16_f32x4_bcf_dbuf_async_warp_rbuf_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(16) __shared__ float A_smem[2][BLOCK_K][BLOCK_M];
    alignas(16) __shared__ float B_smem[2][BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int warp_id = threadIdx.x / 32;
    const int lane_id = threadIdx.x % 32;
    const int thread_m = warp_id / WARPS_N * WARP_M + lane_id / STEP_N * PACK;
    const int thread_n = warp_id % WARPS_N * WARP_N + lane_id % STEP_N * PACK;
    alignas(16) float C_rmem[THREAD_M][THREAD_N] = {};
    float4 A_next[BLOCK_M * BLOCK_K / (THREADS * PACK)];  // this thread's packs of the next slice
    fetch_tile<BLOCK_M, BLOCK_K>(A_next, A, off_m, 0, M, K);
    copy_tile_async<BLOCK_K, BLOCK_N>(B_smem[0], B, 0, off_n, K, N);
    alignas(16) float A_rmem[2][THREAD_M];
    alignas(16) float B_rmem[2][THREAD_N];
    stage_tile_transposed<BLOCK_M, BLOCK_K>(A_smem[0], A_next);
    wait_all();
    // A thread reads rows and columns that others staged, so all of them must have written.
    __syncthreads();
    load_operands(A_rmem[0], B_rmem[0], A_smem[0], B_smem[0], 0, thread_m, thread_n);
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        const int stage = off_k / BLOCK_K % 2;
        if (off_k + BLOCK_K < K) {
            fetch_tile<BLOCK_M, BLOCK_K>(A_next, A, off_m, off_k + BLOCK_K, M, K);
            copy_tile_async<BLOCK_K, BLOCK_N>(B_smem[1 - stage], B, off_k + BLOCK_K, off_n, K, N);
        }
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            // TODO(1): Load the operands of the next k into the buffer that is not multiplied now. After the last k of
            //   this slice, load the first k of the next slice, if there is one: it must be complete by then.
            //   (~9 lines)
            // END TODO(1)
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m)
#pragma unroll
                for (int n = 0; n < THREAD_N; ++n) C_rmem[m][n] += A_rmem[k % 2][m] * B_rmem[k % 2][n];
        }
    }
#pragma unroll
    for (int m = 0; m < THREAD_M; ++m) {
        const int64_t row = off_m + thread_m + m / PACK * PACK * STEP_M + m % PACK;
#pragma unroll
        for (int n = 0; n < THREAD_N; n += PACK) {
            const int64_t col = off_n + thread_n + n * STEP_N;
            if (row < M && col < N) pack_at(&C[row * N + col]) = pack_at(&C_rmem[m][n]);
        }
    }
}

KATA_EXPORT void sgemm_t_8x16_sliced_k16_f32x4_bcf_dbuf_async_warp_rbuf(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    sgemm_t_8x16_sliced_k16_f32x4_bcf_dbuf_async_warp_rbuf_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(
        A, B, C, M, N, K);
}
