// mat_trans_f32x4_tiled_swizzled: y = x transposed, tile by tile, four neighbours of x in and four of y out per thread
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  128-bit loads where N is a multiple of 4, 128-bit stores where M is (else row bases are not 16-byte
//            aligned, and elements go one by one); row i of the tile is permuted, column j stands at i ^ j
// New        over mat_trans_f32_tiled_swizzled: a quarter of the global loads and stores
// Bound      memory bandwidth; a thread has one load in flight, and eight accesses to shared memory wait for it
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
    // TODO(1): global -> registers: one 128-bit load where every row of x begins at a multiple of 16 bytes, else one
    //   by one. Load what exists, and index vec by constants only, so that it stays in registers. (~9 lines)
    // END TODO(1)
    // TODO(2): registers -> shared -> registers: afterwards vec holds column i of the tile, rows j..j+VEC-1. Each of
    //   the 2 * VEC accesses of a warp must reach 32 banks, and nothing may be read before it is there. (~5 lines)
    // END TODO(2)
    // TODO(3): registers -> global: one 128-bit store where every row of y begins at a multiple of 16 bytes, else one
    //   by one; only what y has room for. (~10 lines)
    // END TODO(3)
}

KATA_EXPORT void mat_trans_f32x4_tiled_swizzled(const float* x, float* y, int M, int N, cudaStream_t stream) {
    // One dimension of blocks, since y and z of a grid end at 65535: too few for a tall enough x. The count fits int:
    // 2^31 tiles would be an x of terabytes.
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles_n = (N - 1) / TILE + 1;
    const dim3 threads(TILE / VEC, TILE);
    mat_trans_f32x4_tiled_swizzled_kernel<<<tiles_m * tiles_n, threads, 0, stream>>>(x, y, M, N);
}
