// mat_trans_f32x4_row2col2d: y = x transposed, four neighbours of y per thread, in two-dimensional blocks
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  a block owns a tile of 64 rows and 16 columns of x; one 128-bit store where M is a multiple of 4
//            (otherwise row bases are not 16-byte aligned, and the thread stores element by element)
// New        over mat_trans_f32x4_row2col: a block uses all of each sector of x that it loads
// Bound      memory instructions: each load of a warp touches 16 sectors for 128 bytes of data
#include "kata.cuh"
#include <cstdint>

constexpr int VEC = 4;  // elements per thread: float4 is 16 bytes
constexpr int BLOCK_M = 16 * VEC;
constexpr int BLOCK_N = 16;
constexpr int THREADS = BLOCK_M * BLOCK_N / VEC;

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_row2col2d_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    // This block's BLOCK_M x BLOCK_N tile of x. Blocks go along the rows of tiles. Offsets into a matrix are 64-bit: M
    // and N fit int, but M * N may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    // TODO(1): Give every thread VEC neighbours of y, beginning with x[row, col]. Consecutive threadIdx.x are side by
    //   side along a row of y. (~2 lines)
    const int64_t row = off_m + threadIdx.x * VEC;
    const int64_t col = off_n + threadIdx.y;
    // END TODO(1)
    // TODO(2): Move them to y: by one 128-bit store where every row of y begins at a multiple of 16 bytes, one by one
    //   elsewhere. Neither path accesses anything to the right of x or below it. (~10 lines)
    if (row >= M || col >= N) return;
    if (M % VEC == 0) {
        float4 y4;
        y4.x = x[(row + 0) * N + col];
        y4.y = x[(row + 1) * N + col];
        y4.z = x[(row + 2) * N + col];
        y4.w = x[(row + 3) * N + col];
        reinterpret_cast<float4*>(y + col * M)[row / VEC] = y4;
    }
    if (M % VEC != 0) {
        for (int64_t r = row; r < M && r < row + VEC; ++r) y[col * M + r] = x[r * N + col];
    }
    // END TODO(2)
}

KATA_EXPORT void mat_trans_f32x4_row2col2d(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // The grid has one dimension, because y and z end at 65535: too few for a tall x. The count fits int: an x with
    // 2^31 tiles would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const dim3 threads(BLOCK_M / VEC, BLOCK_N);
    mat_trans_f32x4_row2col2d_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
