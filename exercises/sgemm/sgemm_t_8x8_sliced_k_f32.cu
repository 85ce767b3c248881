// sgemm_t_8x8_sliced_k_f32: C = A @ B, 8 x 8 elements of C per thread
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f32, row-major, contiguous, 16-byte aligned bases, any M, N, K >= 1
// Technique  128x128x8 tiles; a thread holds 64 sums, and loads 8 elements of A and 8 of B for 64 multiply-adds
// New        over sgemm_sliced_k_f32: a tile of C per thread; a quarter of a load per multiply-add instead of two
// Bound      shared memory: loads of one word each, and lanes whose words are in the same bank
#include "kata.cuh"
#include <cstdint>

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 8;
constexpr int THREAD_M = 8;  // rows of C per thread
constexpr int THREAD_N = 8;  // columns of C per thread
constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);

// global -> shared: the tile of X, a matrix of rows x cols, that begins at (off_row, off_col). Elements outside X count
// as 0.
template <int ROWS, int COLS>
__device__ inline void load_tile(
    float (*X_smem)[COLS], const float* X, int64_t off_row, int64_t off_col, int rows, int cols) {
    // TODO(1): Stage the tile with the THREADS threads of the block, several elements each. Adjacent threads stage
    //   adjacent elements. Elements outside X are not loaded. (~5 lines)
    // END TODO(1)
}

__global__ void __launch_bounds__(THREADS) sgemm_t_8x8_sliced_k_f32_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    __shared__ float A_smem[BLOCK_M][BLOCK_K];
    __shared__ float B_smem[BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int thread_m = threadIdx.x / (BLOCK_N / THREAD_N) * THREAD_M;  // this thread's tile within the block's
    const int thread_n = threadIdx.x % (BLOCK_N / THREAD_N) * THREAD_N;
    float C_rmem[THREAD_M][THREAD_N] = {};
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        load_tile<BLOCK_M, BLOCK_K>(A_smem, A, off_m, off_k, M, K);
        load_tile<BLOCK_K, BLOCK_N>(B_smem, B, off_k, off_n, K, N);
        // A thread reads rows and columns that others staged, so all of them must have written.
        __syncthreads();
        // TODO(2): shared -> registers: add this slice's products to all of this thread's sums. Load each element of A
        //   or B into a register once per k and use it eight times. (~9 lines)
        // END TODO(2)
        // The next iteration overwrites both tiles, so all threads must have read them.
        __syncthreads();
    }
    // TODO(3): Store the sums that belong to C. The tile may extend past both edges. (~5 lines)
    // END TODO(3)
}

KATA_EXPORT void sgemm_t_8x8_sliced_k_f32(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    sgemm_t_8x8_sliced_k_f32_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
