// sgemm_t_8x8_sliced_k_f32x4: C = A @ B, 8 x 8 elements of C per thread, memory in 128-bit accesses
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f32, row-major, contiguous, 16-byte aligned bases, N and K multiples of 4
// Technique  128x128x8 tiles; four floats of A or B per load, four of C per store
// New        over sgemm_t_8x8_sliced_k_f32: a quarter of the memory instructions, except for A's columns
// Bound      shared memory: lanes whose words are in the same bank, and A's columns word by word
#include "kata.cuh"
#include <cstdint>

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 8;
constexpr int THREAD_M = 8;  // rows of C per thread
constexpr int THREAD_N = 8;  // columns of C per thread
constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
constexpr int PACK = 4;  // floats in 16 bytes

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
    // TODO(1): Stage the tile with the THREADS threads of the block, one pack at a time, with one 128-bit load and one
    //   128-bit store. Adjacent threads stage adjacent packs. Elements outside X are not loaded. (~7 lines)
    // END TODO(1)
}

__global__ void __launch_bounds__(THREADS) sgemm_t_8x8_sliced_k_f32x4_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(16) __shared__ float A_smem[BLOCK_M][BLOCK_K];
    alignas(16) __shared__ float B_smem[BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int thread_m = threadIdx.x / (BLOCK_N / THREAD_N) * THREAD_M;  // this thread's tile within the block's
    const int thread_n = threadIdx.x % (BLOCK_N / THREAD_N) * THREAD_N;
    alignas(16) float C_rmem[THREAD_M][THREAD_N] = {};
    for (int64_t off_k = 0; off_k < K; off_k += BLOCK_K) {
        load_tile<BLOCK_M, BLOCK_K>(A_smem, A, off_m, off_k, M, K);
        load_tile<BLOCK_K, BLOCK_N>(B_smem, B, off_k, off_n, K, N);
        // A thread reads rows and columns that others staged, so all of them must have written.
        __syncthreads();
        // TODO(2): shared -> registers: add this slice's products to all of this thread's sums. A row of B is loaded in
        //   packs. A column of A cannot be: its elements are BLOCK_K apart. (~10 lines)
        // END TODO(2)
        // The next iteration overwrites both tiles, so all threads must have read them.
        __syncthreads();
    }
    // TODO(3): Store the sums that belong to C, a pack at a time. (~7 lines)
    // END TODO(3)
}

KATA_EXPORT void sgemm_t_8x8_sliced_k_f32x4(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    sgemm_t_8x8_sliced_k_f32x4_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
