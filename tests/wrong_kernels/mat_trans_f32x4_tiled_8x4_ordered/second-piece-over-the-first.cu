// Wrong: both pieces of a thread go to the place of the first
// Kata: mat_trans_f32x4_tiled_8x4_ordered
// Sim: uninitialised
// Gpu: wrong answer
#include "kata.cuh"
#include <cstdint>

constexpr int TILE_M = 128;  // rows of the tile of x: a row of the turned tile is 512 bytes
constexpr int TILE_N = 64;   // columns
constexpr int VEC = 4;       // a thread turns VEC x VEC elements at a time: float4 is 16 bytes
constexpr int VECS_M = TILE_M / VEC;
constexpr int VECS_N = TILE_N / VEC;
constexpr int THREADS = 256;
constexpr int LOAD_ROWS = THREADS / VECS_N;     // of pieces of VEC x VEC that all threads together load in a step
constexpr int LOAD_STEPS = VECS_M / LOAD_ROWS;  // pieces of VEC x VEC per thread
constexpr int STORE_ROWS = THREADS / VECS_M;    // of y that all threads together store in a step
static_assert(VECS_M % LOAD_ROWS == 0 && TILE_N % STORE_ROWS == 0, "all steps are whole");
static_assert((VECS_M & (VECS_M - 1)) == 0 && VECS_N <= VECS_M, "exclusive or with 0..VECS_N-1 permutes 0..VECS_M-1");

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_tiled_8x4_ordered_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    // As in y: row c holds column c of the tile of x, in vectors of VEC rows. Vector v stands at [c][v ^ (c / VEC)].
    __shared__ float4 tile_smem[TILE_N][VECS_M];
    // Down the rows of x first, so that blocks which start one after the other go on with the same rows of y. Offsets
    // into a matrix are 64-bit: M and N fit int, their product need not.
    const int tiles_m = (M - 1) / TILE_M + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x % tiles_m) * TILE_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x / tiles_m) * TILE_N;
    const int tid = threadIdx.x;
    const int tx = tid % VECS_N;  // for the loads
    const int ty = tid / VECS_N;
    // Piece s holds rows (s * LOAD_ROWS + ty) * VEC + 0..3 of the tile of x, columns tx * VEC + 0..3.
    alignas(16) float pieces[LOAD_STEPS][VEC][VEC] = {};
#pragma unroll
    for (int i = 0; i < LOAD_STEPS * VEC; ++i) {
        float* vec = pieces[i / VEC][i % VEC];
        const int64_t row = off_m + (i / VEC * LOAD_ROWS + ty) * VEC + i % VEC;
        const int64_t col = off_n + tx * VEC;
        if (row < M && col < N && N % VEC == 0) {
            *reinterpret_cast<float4*>(vec) = *reinterpret_cast<const float4*>(x + row * N + col);
        } else if (row < M) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                if (col + j < N) vec[j] = x[row * N + col + j];
            }
        }
    }
    // A vector is four banks wide. Of 8 lanes with one ty and consecutive tx, v ^ tx differs in its low three bits.
#pragma unroll
    for (int s = 0; s < LOAD_STEPS; ++s) {
        const int v = ty;
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            tile_smem[tx * VEC + j][v ^ tx] =
                make_float4(pieces[s][0][j], pieces[s][1][j], pieces[s][2][j], pieces[s][3][j]);
        }
    }
    // A row of the tile was put there by threads of all warps.
    __syncthreads();
#pragma unroll
    for (int step = 0; step < TILE_N; step += STORE_ROWS) {
        const int c = step + tid / VECS_M;
        const int v = tid % VECS_M;
        const float4 y4 = tile_smem[c][v ^ (c / VEC)];
        const int64_t row = off_m + v * VEC;
        const int64_t col = off_n + c;
        if (col < N && row < M && M % VEC == 0) {
            reinterpret_cast<float4*>(y + col * M)[row / VEC] = y4;
        } else if (col < N) {
            if (row + 0 < M) y[col * M + row + 0] = y4.x;
            if (row + 1 < M) y[col * M + row + 1] = y4.y;
            if (row + 2 < M) y[col * M + row + 2] = y4.z;
            if (row + 3 < M) y[col * M + row + 3] = y4.w;
        }
    }
}

KATA_EXPORT void mat_trans_f32x4_tiled_8x4_ordered(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // One dimension of blocks, since y and z of a grid end at 65535: too few for a tall enough x. The count fits int:
    // 2^31 tiles would be an x of terabytes.
    const int tiles_m = (M - 1) / TILE_M + 1;
    const int tiles_n = (N - 1) / TILE_N + 1;
    mat_trans_f32x4_tiled_8x4_ordered_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(x, y, M, N);
}
