// sgemm_t_8x8_sliced_k_f32x4_bcf: C = A @ B, 8 x 8 elements of C per thread, memory in 128-bit accesses
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f32, row-major, contiguous, 16-byte aligned bases, N and K multiples of 4
// Technique  128x128x8 tiles; A's is stored transposed in shared memory, and a thread's tile of C is four pieces of 4 x
//            4
// New        over sgemm_t_8x8_sliced_k_f32x4: 128-bit loads of A's columns too, and no bank conflicts
// Bound      latency: no thread multiplies while the next slice is in flight from global memory
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

// global -> shared: the tile of X, a matrix of rows x cols, that begins at (off_row, off_col). Elements outside X count
// as 0. A pack is wholly inside or wholly outside: cols is a multiple of 4.
template <int ROWS, int COLS>
__device__ inline void load_tile(
    float (*X_smem)[COLS], const float* X, int64_t off_row, int64_t off_col, int rows, int cols) {
    static_assert(ROWS * COLS % (THREADS * PACK) == 0, "every thread has equally many packs");
#pragma unroll
    for (int i = 0; i < ROWS * COLS; i += THREADS * PACK) {
        const int row = (i + threadIdx.x * PACK) / COLS;
        const int col = (i + threadIdx.x * PACK) % COLS;
        float4 pack = {};
        if (off_row + row < rows && off_col + col < cols) pack = pack_at(&X[(off_row + row) * cols + off_col + col]);
        pack_at(&X_smem[row][col]) = pack;
    }
}

// global -> shared, transposed: the same into X_smem[col][row].
template <int ROWS, int COLS>
__device__ inline void load_tile_transposed(
    float (*X_smem)[ROWS + PAD], const float* X, int64_t off_row, int64_t off_col, int rows, int cols) {
    static_assert(ROWS * COLS % (THREADS * PACK) == 0, "every thread has equally many packs");
    // TODO(1): Stage as load_tile does, but store the four elements of a pack to four rows of X_smem. (~10 lines)
    // END TODO(1)
}

// Two blocks per SM: at most 128 registers per thread.
__global__ void __launch_bounds__(THREADS, 2) sgemm_t_8x8_sliced_k_f32x4_bcf_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(16) __shared__ float A_smem[BLOCK_K][BLOCK_M + PAD];
    alignas(16) __shared__ float B_smem[BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int thread_m = threadIdx.x / STEP_N * PACK;  // this thread's first pack of rows within the block's tile,
    const int thread_n = threadIdx.x % STEP_N * PACK;  // and of columns
    alignas(16) float C_rmem[THREAD_M][THREAD_N] = {};
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        load_tile_transposed<BLOCK_M, BLOCK_K>(A_smem, A, off_m, off_k, M, K);
        load_tile<BLOCK_K, BLOCK_N>(B_smem, B, off_k, off_n, K, N);
        // A thread reads rows and columns that others staged, so all of them must have written.
        __syncthreads();
        // TODO(2): shared -> registers: add this slice's products to all of this thread's sums. Both operands are
        //   loaded in packs, STEP_M or STEP_N packs apart. Adjacent threads load adjacent packs. (~11 lines)
        // END TODO(2)
        // The next iteration overwrites both tiles, so all threads must have read them.
        __syncthreads();
    }
    // TODO(3): Store the sums that belong to C, a pack at a time, each piece at its own place. (~7 lines)
    // END TODO(3)
}

KATA_EXPORT void sgemm_t_8x8_sliced_k_f32x4_bcf(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    sgemm_t_8x8_sliced_k_f32x4_bcf_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
