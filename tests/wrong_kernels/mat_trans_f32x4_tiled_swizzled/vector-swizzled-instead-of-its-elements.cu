// Wrong: the swizzle is of the first element of a vector, the other three follow it, into the next row at last
// Kata: mat_trans_f32x4_tiled_swizzled
// Sim: race
// Gpu: out of bounds | wrong answer: the last vectors of the tile land behind it
// Line: // BUG
#include "kata.cuh"
#include <cstdint>

constexpr int TILE = 32;  // rows and columns of the tile
constexpr int VEC = 4;    // elements per thread: float4 is 16 bytes
constexpr int THREADS = TILE * TILE / VEC;
static_assert((TILE & (TILE - 1)) == 0, "exclusive or permutes 0..TILE-1 only where TILE is a power of two");

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_tiled_swizzled_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    __shared__ float tile_smem[TILE][TILE];  // as in x, but column j of row i stands at [i][j ^ i]
    // This block's tile of x; blocks go along the rows of tiles. Offsets into a matrix are 64-bit: M and N fit int,
    // their product need not.
    const int tiles_n = (N - 1) / TILE + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * TILE;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * TILE;
    const int i = threadIdx.y;        // this thread loads row i of the tile, columns j..j+VEC-1,
    const int j = threadIdx.x * VEC;  // and stores column i of it, rows j..j+VEC-1
    alignas(16) float vec[VEC] = {};
    const float* x_row = x + (off_m + i) * N;
    if (off_m + i < M && off_n + j < N && N % VEC == 0) {
        *reinterpret_cast<float4*>(vec) = *reinterpret_cast<const float4*>(x_row + off_n + j);
    } else if (off_m + i < M) {
#pragma unroll
        for (int v = 0; v < VEC; ++v) {
            if (off_n + j + v < N) vec[v] = x_row[off_n + j + v];
        }
    }
    // A warp has four i and eight j: in (j + v) ^ i, the i make the low two bits differ, the j the high three.
#pragma unroll
    for (int v = 0; v < VEC; ++v) tile_smem[i][(j ^ i) + v] = vec[v];  // BUG
    // The elements that a thread reads come from VEC rows, staged by others.
    __syncthreads();
#pragma unroll
    for (int v = 0; v < VEC; ++v) vec[v] = tile_smem[j + v][i ^ (j + v)];
    float* y_row = y + (off_n + i) * M;
    if (off_n + i < N && off_m + j < M && M % VEC == 0) {
        // Marked as streaming: nobody reads y again, so it need not stay in the caches.
        __stcs(reinterpret_cast<float4*>(y_row + off_m + j), make_float4(vec[0], vec[1], vec[2], vec[3]));
    } else if (off_n + i < N) {
#pragma unroll
        for (int v = 0; v < VEC; ++v) {
            if (off_m + j + v < M) y_row[off_m + j + v] = vec[v];
        }
    }
}

KATA_EXPORT void mat_trans_f32x4_tiled_swizzled(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // One dimension of blocks, since y and z of a grid end at 65535: too few for a tall enough x. The count fits int:
    // 2^31 tiles would be an x of terabytes.
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles_n = (N - 1) / TILE + 1;
    const dim3 threads(TILE / VEC, TILE);
    mat_trans_f32x4_tiled_swizzled_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
