// tma_transpose_ring_f32: y = x transposed, with several tiles of each block in flight
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, M and N multiples of 4
// Technique  as many blocks as fit on the card, each with every gridDim.x-th tile; per block a ring of three tiles of x
//            and one of two tiles of y, swizzled boxes, 4 x 4 elements per thread in registers
// New        over tma_transpose_swizzle_f32: copies in, the transposition, and copies out go on at the same time
// Bound      memory bandwidth
#include "kata.cuh"
#include "kata_tma.cuh"
#include <cstdint>
#include <cuda.h>

// From kata_tma.cuh:
using kata::matrix_map, kata::mbarrier_init, kata::expect, kata::wait, kata::load_box, kata::store_box,
    kata::commit_stores, kata::wait_read, kata::fence_proxy;

constexpr int BOX = 32;   // rows and columns of a box: a row has the 128 bytes of the swizzle's span
constexpr int TILE = 64;  // rows and columns of a tile
constexpr int SIDE = TILE / BOX;
constexpr int BOXES = SIDE * SIDE;  // of a tile, in the order of rows of x
constexpr int VEC = 4;              // floats in a chunk of 16 bytes
constexpr int CHUNKS = BOX / VEC;   // of a row of a box
constexpr int BOX_BYTES = BOX * BOX * sizeof(float);
constexpr int BOX_THREADS = CHUNKS * CHUNKS;  // each has 4 x 4 elements
constexpr int THREADS = BOXES * BOX_THREADS;
constexpr int STAGES = 3;         // tiles of x in shared memory
constexpr int OUTS = 2;           // tiles of y there
constexpr int BLOCKS_PER_SM = 2;  // 80 KB of shared memory each

struct Ring {
    alignas(1024) float4 x[STAGES][BOXES][BOX][CHUNKS];
    alignas(1024) float4 y[OUTS][BOXES][BOX][CHUNKS];
    uint64_t full[STAGES];  // of the tiles of x
};

// The place of a row's chunk of 16 bytes in a box that the copy engine swizzles. Bits 4 to 6 of an address become their
// xor with bits 7 to 9 (PTX ISA, "Swizzling modes"). Boxes begin at multiples of 1024 bytes.
__device__ inline int place_of(int row, int chunk) {
    return chunk ^ (row % 8);
}

// A tile of x, transposed, into a tile of y.
__device__ inline void transpose_tile(
    float4 (*y_smem)[BOX][CHUNKS],          // [BOXES][BOX][CHUNKS]
    const float4 (*x_smem)[BOX][CHUNKS]) {  // [BOXES][BOX][CHUNKS]
    // This thread moves rows q * VEC + 0..3 of chunk c of box b. Lanes go along a diagonal: eight lanes together read
    // eight chunks in different banks, and so do the writes, where q and c have swapped.
    const int b = threadIdx.x / BOX_THREADS;
    const int q = threadIdx.x % CHUNKS;
    const int c = threadIdx.x % BOX_THREADS / CHUNKS ^ q;
    float x4[VEC][VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
        const int r = q * VEC + i;
        const float4 chunk = x_smem[b][r][place_of(r, c)];
        x4[i][0] = chunk.x, x4[i][1] = chunk.y, x4[i][2] = chunk.z, x4[i][3] = chunk.w;
    }
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        const int r = c * VEC + j;
        y_smem[b][r][place_of(r, q)] = make_float4(x4[0][j], x4[1][j], x4[2][j], x4[3][j]);
    }
}

__global__ void __launch_bounds__(THREADS) tma_transpose_ring_f32_kernel(
    const __grid_constant__ CUtensorMap x_map,  // [M, N]
    const __grid_constant__ CUtensorMap y_map,  // [N, M]
    int tiles_m, int tiles) {
    alignas(1024) extern __shared__ unsigned char smem[];
    Ring& ring = *reinterpret_cast<Ring*>(smem);
    // The block's k-th tile goes to ring.x[k % STAGES], and transposed to ring.y[k % OUTS]. All blocks together write
    // adjacent pieces of the same rows of y.
    auto tile_of = [&](int k) { return static_cast<int>(blockIdx.x + k * gridDim.x); };
    auto row_of = [&](int k) { return tile_of(k) % tiles_m * TILE; };  // of x
    auto col_of = [&](int k) { return tile_of(k) / tiles_m * TILE; };
    auto load_tile = [&](int k) {
        const int s = k % STAGES;
        expect(&ring.full[s], BOXES * BOX_BYTES);
        for (int b = 0; b < BOXES; ++b) {
            const int col = col_of(k) + b % SIDE * BOX;
            load_box(ring.x[s][b], &x_map, col, row_of(k) + b / SIDE * BOX, &ring.full[s]);
        }
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) mbarrier_init(&ring.full[s], 1);
        for (int k = 0; k < STAGES && tile_of(k) < tiles; ++k) load_tile(k);
    }
    for (int k = 0; tile_of(k) < tiles; ++k) {
        const int s = k % STAGES;
        const int out = k % OUTS;
        // TODO(1): Tile k of x is there, for every thread. The copy engine has read the tile of y that was in
        //   ring.y[out]. The copy out of tile k - 1 may still be in flight. (~3 lines)
        if (threadIdx.x == 0) wait_read<OUTS - 1>();
        __syncthreads();
        wait(&ring.full[s], k / STAGES % 2);
        // END TODO(1)
        transpose_tile(ring.y[out], ring.x[s]);
        // TODO(2): Every thread has read ring.x[s], and what it wrote is visible to the copy engine. Then one thread
        //   stores the boxes of y, as one bulk group, and loads the next tile into ring.x[s], if there is one.
        //   (~9 lines)
        fence_proxy();
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int b = 0; b < BOXES; ++b)
                store_box(&y_map, row_of(k) + b / SIDE * BOX, col_of(k) + b % SIDE * BOX, ring.y[out][b]);
            commit_stores();
            if (tile_of(k + STAGES) < tiles) load_tile(k + STAGES);
        }
        // END TODO(2)
    }
    if (threadIdx.x == 0) wait_read<0>();
}

KATA_EXPORT void tma_transpose_ring_f32(const float* x, float* y, int M, int N, cudaStream_t stream) {
    int device = 0;
    int sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles = tiles_m * ((N - 1) / TILE + 1);
    const int blocks = tiles < sms * BLOCKS_PER_SM ? tiles : sms * BLOCKS_PER_SM;
    const CUtensorMap x_map = matrix_map(x, M, N, BOX, BOX, CU_TENSOR_MAP_SWIZZLE_128B);
    const CUtensorMap y_map = matrix_map(y, N, M, BOX, BOX, CU_TENSOR_MAP_SWIZZLE_128B);
    cudaFuncSetAttribute(tma_transpose_ring_f32_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    tma_transpose_ring_f32_kernel<<<blocks, THREADS, sizeof(Ring), stream>>>(x_map, y_map, tiles_m, tiles);
}
