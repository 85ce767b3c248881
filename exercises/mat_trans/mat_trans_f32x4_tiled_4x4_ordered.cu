// mat_trans_f32x4_tiled_4x4_ordered: y = x transposed, tiles in the order of y in memory
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  128-bit loads where N is a multiple of 4, 128-bit stores where M is (otherwise row bases are not 16-byte
//            aligned, and the thread moves element by element); 64x64 tiles of vectors, swizzled
// New        over mat_trans_f32x4_tiled_4x4: only which block owns which tile
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>

constexpr int TILE = 64;          // rows and columns of the tile
constexpr int VEC = 4;            // a thread owns VEC x VEC elements: float4 is 16 bytes
constexpr int VECS = TILE / VEC;  // vectors per row of the tile
constexpr int THREADS = VECS * VECS;
static_assert((VECS & (VECS - 1)) == 0, "exclusive or permutes 0..VECS-1 only where VECS is a power of two");

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_tiled_4x4_ordered_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    // As in y: row i holds column i of the tile of x, in vectors of VEC rows. Vector v is at [i][v ^ (i / VEC)].
    __shared__ float4 tile_smem[TILE][VECS];
    const int tiles_m = (M - 1) / TILE + 1;
    int tile_m = 0;
    int tile_n = 0;
    // TODO(1): From blockIdx.x, find this block's row and column of tiles of x. Blocks that start one after the other
    //   write adjacent pieces of the same rows of y. Every tile has one block. (~2 lines)
    // END TODO(1)
    // Offsets into a matrix are 64-bit: M and N fit int, but M * N may not.
    const int64_t off_m = static_cast<int64_t>(tile_m) * TILE;
    const int64_t off_n = static_cast<int64_t>(tile_n) * TILE;
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    alignas(16) float vecs[VEC][VEC] = {};  // rows ty * VEC + 0..3 of the tile of x, columns tx * VEC + 0..3
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
        const int64_t row = off_m + ty * VEC + i;
        const int64_t col = off_n + tx * VEC;
        if (row < M && col < N && N % VEC == 0) {
            *reinterpret_cast<float4*>(vecs[i]) = *reinterpret_cast<const float4*>(x + row * N + col);
        } else if (row < M) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                if (col + j < N) vecs[i][j] = x[row * N + col + j];
            }
        }
    }
    // A vector is four banks wide. In 8 lanes with one ty and consecutive tx, ty ^ tx differs in its low three bits.
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        tile_smem[tx * VEC + j][ty ^ tx] = make_float4(vecs[0][j], vecs[1][j], vecs[2][j], vecs[3][j]);
    }
    // VECS threads wrote a row of the tile, most of them in other warps.
    __syncthreads();
#pragma unroll
    for (int step = 0; step < TILE; step += VECS) {
        const int i = step + ty;
        const int64_t row = off_m + tx * VEC;
        const int64_t col = off_n + i;
        alignas(16) float vec[VEC];
        *reinterpret_cast<float4*>(vec) = tile_smem[i][tx ^ (i / VEC)];
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
}

KATA_EXPORT void mat_trans_f32x4_tiled_4x4_ordered(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // The grid has one dimension, because y and z end at 65535: too few for a tall x. The count fits int: an x with
    // 2^31 tiles would take terabytes.
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles_n = (N - 1) / TILE + 1;
    const dim3 threads(VECS, VECS);
    mat_trans_f32x4_tiled_4x4_ordered_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
