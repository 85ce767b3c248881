// sgemm_t_8x8_sliced_k_f32x4_bcf_dbuf: C = A @ B, 8 x 8 elements of C per thread, memory in 128-bit accesses
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f32, row-major, contiguous, 16-byte aligned bases, N and K multiples of 4
// Technique  128x128x8 tiles, two of each in shared memory: one is staged while the other is multiplied
// New        over sgemm_t_8x8_sliced_k_f32x4_bcf_prefetch: one barrier per slice instead of two
// Bound      instructions: the barrier, addresses and loads around eight times 64 multiply-adds
#include "kata.cuh"
#include <cstdint>

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 8;
constexpr int THREAD_M = 8;  // rows of C per thread
constexpr int THREAD_N = 8;  // columns of C per thread
constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
constexpr int PACK = 4;                     // floats in 16 bytes
constexpr int STEP_M = BLOCK_M / THREAD_M;  // threads along M: a thread's packs of rows are PACK * STEP_M apart
constexpr int STEP_N = BLOCK_N / THREAD_N;  // and its packs of columns PACK * STEP_N
constexpr int PAD = 4;  // A's slices are 132 words apart: k and k + 4 are 16 banks apart, packs remain aligned

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

// registers -> shared: the packs that fetch_tile has fetched.
template <int ROWS, int COLS>
__device__ inline void stage_tile(float (*X_smem)[COLS], const float4* X_rmem) {
#pragma unroll
    for (int i = 0; i < ROWS * COLS; i += THREADS * PACK) {
        const int at = i + threadIdx.x * PACK;
        pack_at(&X_smem[at / COLS][at % COLS]) = X_rmem[i / (THREADS * PACK)];
    }
}

// registers -> shared, transposed: the same into X_smem[col][row].
template <int ROWS, int COLS>
__device__ inline void stage_tile_transposed(float (*X_smem)[ROWS + PAD], const float4* X_rmem) {
#pragma unroll
    for (int i = 0; i < ROWS * COLS; i += THREADS * PACK) {
        const int row = (i + threadIdx.x * PACK) / COLS;
        const int col = (i + threadIdx.x * PACK) % COLS;
        const float4 pack = X_rmem[i / (THREADS * PACK)];
        // Two lanes share a row of X. PAD puts the 32 words of a warp's store into 32 banks.
        X_smem[col + 0][row] = pack.x;
        X_smem[col + 1][row] = pack.y;
        X_smem[col + 2][row] = pack.z;
        X_smem[col + 3][row] = pack.w;
    }
}

__global__ void __launch_bounds__(THREADS, 2) sgemm_t_8x8_sliced_k_f32x4_bcf_dbuf_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(16) __shared__ float A_smem[2][BLOCK_K][BLOCK_M + PAD];
    alignas(16) __shared__ float B_smem[2][BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int thread_m = threadIdx.x / STEP_N * PACK;  // this thread's first pack of rows within the block's tile,
    const int thread_n = threadIdx.x % STEP_N * PACK;  // and of columns
    alignas(16) float C_rmem[THREAD_M][THREAD_N] = {};
    float4 A_next[BLOCK_M * BLOCK_K / (THREADS * PACK)];  // this thread's packs of the next slice
    float4 B_next[BLOCK_K * BLOCK_N / (THREADS * PACK)];
    fetch_tile<BLOCK_M, BLOCK_K>(A_next, A, off_m, 0, M, K);
    fetch_tile<BLOCK_K, BLOCK_N>(B_next, B, 0, off_n, K, N);
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        // TODO(1): Stage this slice in its buffer. The buffers alternate; the first slice is in buffer 0. (~3 lines)
        const int stage = off_k / BLOCK_K % 2;
        stage_tile_transposed<BLOCK_M, BLOCK_K>(A_smem[stage], A_next);
        stage_tile<BLOCK_K, BLOCK_N>(B_smem[stage], B_next);
        // END TODO(1)
        // A thread reads rows and columns that others staged, so all of them must have written. All are done with the
        // previous slice: the next iteration may overwrite its buffer.
        __syncthreads();
        if (off_k + BLOCK_K < K) {
            fetch_tile<BLOCK_M, BLOCK_K>(A_next, A, off_m, off_k + BLOCK_K, M, K);
            fetch_tile<BLOCK_K, BLOCK_N>(B_next, B, off_k + BLOCK_K, off_n, K, N);
        }
        // TODO(2): shared -> registers: add this slice's products to all of this thread's sums, from the buffer that
        //   holds it. The one barrier above must be enough. (~11 lines)
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            alignas(16) float A_rmem[THREAD_M];
            alignas(16) float B_rmem[THREAD_N];
#pragma unroll
            for (int m = 0; m < THREAD_M; m += PACK)
                pack_at(&A_rmem[m]) = pack_at(&A_smem[stage][k][thread_m + m * STEP_M]);
#pragma unroll
            for (int n = 0; n < THREAD_N; n += PACK)
                pack_at(&B_rmem[n]) = pack_at(&B_smem[stage][k][thread_n + n * STEP_N]);
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m)
#pragma unroll
                for (int n = 0; n < THREAD_N; ++n) C_rmem[m][n] += A_rmem[m] * B_rmem[n];
        }
        // END TODO(2)
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

KATA_EXPORT void sgemm_t_8x8_sliced_k_f32x4_bcf_dbuf(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    sgemm_t_8x8_sliced_k_f32x4_bcf_dbuf_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
