// mat_trans_f32x4_tiled_4x4: y = x transposed, 4x4 elements per thread, transposed in registers
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  128-bit loads where N is a multiple of 4, 128-bit stores where M is (otherwise row bases are not 16-byte
//            aligned, and the thread moves element by element); 64x64 tiles of vectors, swizzled
// New        over mat_trans_f32x4_tiled_swizzled: four loads in flight per thread; 128-bit accesses to shared memory
//            too
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>

constexpr int TILE = 64;          // rows and columns of the tile
constexpr int VEC = 4;            // a thread owns VEC x VEC elements: float4 is 16 bytes
constexpr int VECS = TILE / VEC;  // vectors per row of the tile
constexpr int THREADS = VECS * VECS;
static_assert((VECS & (VECS - 1)) == 0, "exclusive or permutes 0..VECS-1 only where VECS is a power of two");

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_tiled_4x4_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    // As in y: row i holds column i of the tile of x, in vectors of VEC rows. Vector v is at [i][v ^ (i / VEC)].
    __shared__ float4 tile_smem[TILE][VECS];
    // This block's tile of x. Blocks go along the rows of tiles. Offsets into a matrix are 64-bit: M and N fit int, but
    // M * N may not.
    const int tiles_n = (N - 1) / TILE + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * TILE;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * TILE;
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    alignas(16) float vecs[VEC][VEC] = {};  // rows ty * VEC + 0..3 of the tile of x, columns tx * VEC + 0..3
    // TODO(1): global -> registers: issue VEC independent loads, by 128 bits where every row of x begins at a multiple
    //   of 16 bytes, otherwise element by element. Load what exists. (~12 lines)
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
    // END TODO(1)
    // TODO(2): registers -> shared: transpose the VEC x VEC elements in registers, and store each vector at its
    //   swizzled place. Every 8 lanes that store together must access all 32 banks. (~6 lines)
    // A vector is four banks wide. In 8 lanes with one ty and consecutive tx, ty ^ tx differs in its low three bits.
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        tile_smem[tx * VEC + j][ty ^ tx] = make_float4(vecs[0][j], vecs[1][j], vecs[2][j], vecs[3][j]);
    }
    // VECS threads wrote a row of the tile, most of them in other warps.
    __syncthreads();
    // END TODO(2)
    // TODO(3): shared -> registers -> global: store y row by row, VECS threads side by side on each. Use 128 bits where
    //   every row of y begins at a multiple of 16 bytes, otherwise store element by element. Store only what exists.
    //   (~15 lines)
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
    // END TODO(3)
}

KATA_EXPORT void mat_trans_f32x4_tiled_4x4(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // The grid has one dimension, because y and z end at 65535: too few for a tall x. The count fits int: an x with
    // 2^31 tiles would take terabytes.
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles_n = (N - 1) / TILE + 1;
    const dim3 threads(VECS, VECS);
    mat_trans_f32x4_tiled_4x4_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
