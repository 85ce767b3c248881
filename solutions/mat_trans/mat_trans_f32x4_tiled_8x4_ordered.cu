// mat_trans_f32x4_tiled_8x4_ordered: y = x transposed, eight loads of 128 bits in flight per thread
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  128-bit loads where N is a multiple of 4, 128-bit stores where M is (otherwise row bases are not 16-byte
//            aligned, and the thread moves element by element); tiles of 128x64, two pieces of 4x4 elements per thread
// New        over mat_trans_f32x4_tiled_4x4_long_ordered: half the threads, each with twice as many loads in
//            flight; plain stores
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>

constexpr int TILE_M = 128;           // rows of the tile of x: a row of the transposed tile is 512 bytes
constexpr int TILE_N = 64;            // columns
constexpr int VEC = 4;                // a thread transposes VEC x VEC elements at a time: float4 is 16 bytes
constexpr int VECS_M = TILE_M / VEC;  // vectors per row of the transposed tile
constexpr int VECS_N = TILE_N / VEC;  // vectors per row of the tile of x
constexpr int PIECES = 2;             // pieces of VEC x VEC elements per thread
constexpr int THREADS = VECS_M * VECS_N / PIECES;
constexpr int LOAD_ROWS = THREADS / VECS_N;   // rows of pieces that all threads together load in a step
constexpr int STORE_ROWS = THREADS / VECS_M;  // rows of y that all threads together store in a step
static_assert(LOAD_ROWS * PIECES == VECS_M && TILE_N % STORE_ROWS == 0, "all steps are whole");
static_assert((VECS_M & (VECS_M - 1)) == 0 && VECS_N <= VECS_M, "exclusive or with 0..VECS_N-1 permutes 0..VECS_M-1");

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_tiled_8x4_ordered_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    // As in y: row i holds column i of the tile of x, in vectors of VEC rows. Vector v is at [i][v ^ (i / VEC)].
    __shared__ float4 tile_smem[TILE_N][VECS_M];
    // Down the rows of x first: blocks that start one after the other continue the same rows of y. Offsets into a
    // matrix are 64-bit: M and N fit int, but M * N may not.
    const int tiles_m = (M - 1) / TILE_M + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x % tiles_m) * TILE_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x / tiles_m) * TILE_N;
    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    // Piece p: rows (p * LOAD_ROWS + ty) * VEC + 0..3 of the tile of x, columns tx * VEC + 0..3.
    alignas(16) float vecs[PIECES * VEC][VEC] = {};
    // TODO(1): global -> registers: load all pieces of this thread first, by 128 bits where every row of x begins at a
    //   multiple of 16 bytes, otherwise element by element. Load what exists. (~12 lines)
#pragma unroll
    for (int i = 0; i < PIECES * VEC; ++i) {
        const int64_t row = off_m + (i / VEC * LOAD_ROWS + ty) * VEC + i % VEC;
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
    // TODO(2): registers -> shared: transpose each piece in registers, and store its vectors at their swizzled places.
    //   No thread may read a row of the tile before it is complete. (~8 lines)
    // A vector is four banks wide. In 8 lanes with one ty and consecutive tx, v ^ tx differs in its low three bits.
#pragma unroll
    for (int p = 0; p < PIECES * VEC; p += VEC) {
        const int v = p / VEC * LOAD_ROWS + ty;
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            tile_smem[tx * VEC + j][v ^ tx] = make_float4(vecs[p][j], vecs[p + 1][j], vecs[p + 2][j], vecs[p + 3][j]);
        }
    }
    // Threads of all warps wrote a row of the tile.
    __syncthreads();
    // END TODO(2)
    // TODO(3): shared -> registers -> global: store y row by row, VECS_M threads side by side on each. Use 128 bits
    //   where every row of y begins at a multiple of 16 bytes, otherwise store element by element. Store only what
    //   exists. (~17 lines)
    const int tid = ty * VECS_N + tx;
#pragma unroll
    for (int step = 0; step < TILE_N; step += STORE_ROWS) {
        const int i = step + tid / VECS_M;
        const int v = tid % VECS_M;
        const int64_t row = off_m + v * VEC;
        const int64_t col = off_n + i;
        alignas(16) float vec[VEC];
        *reinterpret_cast<float4*>(vec) = tile_smem[i][v ^ (i / VEC)];
        if (col < N && row < M && M % VEC == 0) {
            reinterpret_cast<float4*>(y + col * M)[row / VEC] = *reinterpret_cast<const float4*>(vec);
        } else if (col < N) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                if (row + j < M) y[col * M + row + j] = vec[j];
            }
        }
    }
    // END TODO(3)
}

KATA_EXPORT void mat_trans_f32x4_tiled_8x4_ordered(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // The grid has one dimension, because y and z end at 65535: too few for a tall x. The count fits int: an x with
    // 2^31 tiles would take terabytes.
    const int tiles_m = (M - 1) / TILE_M + 1;
    const int tiles_n = (N - 1) / TILE_N + 1;
    const dim3 threads(VECS_N, LOAD_ROWS);
    mat_trans_f32x4_tiled_8x4_ordered_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
