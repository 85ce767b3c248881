// Wrong: 128-bit stores are made where N is a multiple of 4, and M should be
// Kata: mat_trans_f32x4_tiled_4x4
// Sim: misaligned
// Gpu: misaligned
// Line: // BUG
#include "kata.cuh"
#include <cstdint>

constexpr int TILE = 64;          // rows and columns of the tile
constexpr int VEC = 4;            // a thread owns VEC x VEC elements: float4 is 16 bytes
constexpr int VECS = TILE / VEC;  // vectors to a row of the tile
constexpr int THREADS = VECS * VECS;
static_assert((VECS & (VECS - 1)) == 0, "exclusive or permutes 0..VECS-1 only where VECS is a power of two");

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_tiled_4x4_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    // As in y: row i holds column i of the tile of x, in vectors of VEC rows. Vector v stands at [i][v ^ (i / VEC)].
    __shared__ float4 tile_smem[TILE][VECS];
    // This block's tile of x; blocks go along the rows of tiles. Offsets into a matrix are 64-bit: M and N fit int,
    // their product need not.
    const int tiles_n = (N - 1) / TILE + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * TILE;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * TILE;
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
    // A vector is four banks wide. Of 8 lanes with one ty and consecutive tx, ty ^ tx differs in its low three bits.
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        tile_smem[tx * VEC + j][ty ^ tx] = make_float4(vecs[0][j], vecs[1][j], vecs[2][j], vecs[3][j]);
    }
    // A row of the tile was put there by VECS threads, most of them of other warps.
    __syncthreads();
#pragma unroll
    for (int step = 0; step < TILE; step += VECS) {
        const int i = step + ty;
        const int64_t row = off_m + tx * VEC;
        const int64_t col = off_n + i;
        alignas(16) float vec[VEC];
        *reinterpret_cast<float4*>(vec) = tile_smem[i][tx ^ (i / VEC)];
        if (col < N && row < M && N % VEC == 0) {
            // Marked as streaming: nobody reads y again, so it need not stay in the caches.
            __stcs(reinterpret_cast<float4*>(y + col * M + row), *reinterpret_cast<const float4*>(vec));  // BUG
        } else if (col < N) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                if (row + j < M) y[col * M + row + j] = vec[j];
            }
        }
    }
}

KATA_EXPORT void mat_trans_f32x4_tiled_4x4(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // One dimension of blocks, since y and z of a grid end at 65535: too few for a tall enough x. The count fits int:
    // 2^31 tiles would be an x of terabytes.
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles_n = (N - 1) / TILE + 1;
    const dim3 threads(VECS, VECS);
    mat_trans_f32x4_tiled_4x4_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
