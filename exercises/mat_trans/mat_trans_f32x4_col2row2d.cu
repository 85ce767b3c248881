// mat_trans_f32x4_col2row2d: y = x transposed, four neighbours of x per thread, in two-dimensional blocks
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  a block owns a tile of 16 rows and 64 columns of x; one 128-bit load where N is a multiple of 4 (otherwise
//            row bases are not 16-byte aligned, and the thread loads element by element)
// New        over mat_trans_f32x4_col2row: the 16 rows of a block's stores share sectors of y
// Bound      memory instructions: each store of a warp touches 16 sectors for 128 bytes of data
#include "kata.cuh"
#include <cstdint>

constexpr int VEC = 4;  // elements per thread: float4 is 16 bytes
constexpr int BLOCK_M = 16;
constexpr int BLOCK_N = 16 * VEC;
constexpr int THREADS = BLOCK_M * BLOCK_N / VEC;

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_col2row2d_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    // This block's BLOCK_M x BLOCK_N tile of x. Blocks go along the rows of tiles. Offsets into a matrix are 64-bit: M
    // and N fit int, but M * N may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    // TODO(1): Give every thread VEC neighbours of x, beginning at (row, col). Consecutive threadIdx.x are side by side
    //   along a row of x. (~2 lines)
    // END TODO(1)
    // TODO(2): Move them to y: by one 128-bit load where every row of x begins at a multiple of 16 bytes, one by one
    //   elsewhere. Neither path accesses anything to the right of x or below it. (~9 lines)
    // END TODO(2)
}

KATA_EXPORT void mat_trans_f32x4_col2row2d(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // The grid has one dimension, because y and z end at 65535: too few for a tall x. The count fits int: an x with
    // 2^31 tiles would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const dim3 threads(BLOCK_N / VEC, BLOCK_M);
    mat_trans_f32x4_col2row2d_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
