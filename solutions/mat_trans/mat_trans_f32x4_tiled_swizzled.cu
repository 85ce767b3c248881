// mat_trans_f32x4_tiled_swizzled: y = x transposed, tile by tile, in vectors of four neighbours of x, then of y
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  128-bit loads where N is a multiple of 4, 128-bit stores where M is (otherwise row bases are not 16-byte
//            aligned, and the thread moves element by element); row i of the tile is permuted, column j is at i ^ j
// New        over mat_trans_f32_tiled_swizzled: a quarter of the global loads and stores; streaming stores
// Bound      memory bandwidth; the kernel still writes and reads shared memory element by element
#include "kata.cuh"
#include <cstdint>

constexpr int TILE = 32;  // rows and columns of the tile
static_assert((TILE & (TILE - 1)) == 0, "exclusive or permutes 0..TILE-1 only where TILE is a power of two");
constexpr int VEC = 4;                            // elements per access: float4 is 16 bytes
constexpr int BLOCK_ROWS = 8;                     // rows of the tile that the block moves at a time
constexpr int THREADS = TILE / VEC * BLOCK_ROWS;  // each thread moves TILE / BLOCK_ROWS vectors
static_assert(TILE % BLOCK_ROWS == 0, "the block takes the same number of rows in every step");

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_tiled_swizzled_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    __shared__ float tile_smem[TILE][TILE];  // as in x, but column j of row i is at [i][j ^ i]
    // This block's tile of x. Blocks go along the rows of tiles. Offsets into a matrix are 64-bit: M and N fit int, but
    // M * N may not.
    const int tiles_n = (N - 1) / TILE + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * TILE;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * TILE;
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    // TODO(1): global -> registers -> shared: load the part of the tile that exists, by 128 bits where every row of x
    //   begins at a multiple of 16 bytes, otherwise element by element. Store each element at its swizzled place.
    //   (~17 lines)
    // A warp has four i and eight tx: in (tx * VEC + j) ^ i, the low two bits differ with i, and the high three with
    // tx.
#pragma unroll
    for (int step = 0; step < TILE; step += BLOCK_ROWS) {
        const int i = step + ty;
        const int64_t row = off_m + i;
        const int64_t col = off_n + tx * VEC;
        alignas(16) float vec[VEC] = {};
        if (row < M && col < N && N % VEC == 0) {
            *reinterpret_cast<float4*>(vec) = *reinterpret_cast<const float4*>(x + row * N + col);
        } else if (row < M) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                if (col + j < N) vec[j] = x[row * N + col + j];
            }
        }
#pragma unroll
        for (int j = 0; j < VEC; ++j) tile_smem[i][(tx * VEC + j) ^ i] = vec[j];
    }
    // END TODO(1)
    // TODO(2): No thread may read an element of the tile before another thread has written it. (~1 line)
    // The elements of a vector of y come from VEC rows of the tile, which other threads wrote.
    __syncthreads();
    // END TODO(2)
    // TODO(3): shared -> registers -> global: store the transposed tile, by 128 bits where every row of y begins at a
    //   multiple of 16 bytes, otherwise element by element. Store only what exists. A warp's 32 words come from 32
    //   banks. (~17 lines)
#pragma unroll
    for (int step = 0; step < TILE; step += BLOCK_ROWS) {
        const int i = step + ty;
        const int64_t row = off_m + tx * VEC;
        const int64_t col = off_n + i;
        alignas(16) float vec[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) vec[j] = tile_smem[tx * VEC + j][i ^ (tx * VEC + j)];
        if (col < N && row < M && M % VEC == 0) {
            // Streaming store: the kernel does not read y again, so y need not stay in the caches.
            __stcs(reinterpret_cast<float4*>(y + col * M + row), *reinterpret_cast<const float4*>(vec));
        } else if (col < N) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                if (row + j < M) y[col * M + row + j] = vec[j];
            }
        }
    }
    // END TODO(3)
}

KATA_EXPORT void mat_trans_f32x4_tiled_swizzled(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // The grid has one dimension, because y and z end at 65535: too few for a tall x. The count fits int: an x with
    // 2^31 tiles would take terabytes.
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles_n = (N - 1) / TILE + 1;
    const dim3 threads(TILE / VEC, BLOCK_ROWS);
    mat_trans_f32x4_tiled_swizzled_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
