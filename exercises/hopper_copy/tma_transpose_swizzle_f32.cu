// tma_transpose_swizzle_f32: y = x transposed, by tensor copies that swizzle, without bank conflicts
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, M and N multiples of 4
// Technique  tensor maps with the 128-byte swizzle; 2 x 2 boxes of 32 x 32 per block; a thread transposes 4 x 4 floats
//            in registers
// New        over tma_transpose_f32: the copy engine permutes the 16-byte chunks of each row. Threads must do the same
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

// The place of a row's chunk of 16 bytes in a box that the copy engine swizzles. Bits 4 to 6 of an address become their
// xor with bits 7 to 9 (PTX ISA, "Swizzling modes"). Boxes begin at multiples of 1024 bytes.
__device__ inline int place_of(int row, int chunk) {
    int place = chunk;
    // TODO(1): Which bits of an address count the chunks of a row, and which count the rows? (~1 line)
    // END TODO(1)
    return place;
}

__global__ void __launch_bounds__(THREADS) tma_transpose_swizzle_f32_kernel(
    const __grid_constant__ CUtensorMap x_map,  // [M, N]
    const __grid_constant__ CUtensorMap y_map,  // [N, M]
    int tiles_m) {
    // The pattern of the swizzle repeats every 1024 bytes of addresses. So each box begins at a multiple of that.
    alignas(1024) __shared__ float4 x_smem[BOXES][BOX][CHUNKS];
    alignas(1024) __shared__ float4 y_smem[BOXES][BOX][CHUNKS];
    __shared__ uint64_t full;
    const int row = blockIdx.x % tiles_m * TILE;  // of x
    const int col = blockIdx.x / tiles_m * TILE;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        expect(&full, BOXES * BOX_BYTES);
        for (int b = 0; b < BOXES; ++b) load_box(x_smem[b], &x_map, col + b % SIDE * BOX, row + b / SIDE * BOX, &full);
    }
    __syncthreads();
    wait(&full, 0);
    // This thread moves rows q * VEC + 0..3 of chunk c of box b. Lanes go along a diagonal: eight lanes together read
    // eight chunks in different banks, and so do the writes, where q and c have swapped.
    const int b = threadIdx.x / BOX_THREADS;
    const int q = threadIdx.x % CHUNKS;
    const int c = threadIdx.x % BOX_THREADS / CHUNKS ^ q;
    float x4[VEC][VEC];
    // TODO(2): Read the thread's four chunks from where the swizzle has put them. Write them transposed, to where the
    //   copy engine looks for them. (~10 lines)
    // END TODO(2)
    fence_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int s = 0; s < BOXES; ++s) store_box(&y_map, row + s / SIDE * BOX, col + s % SIDE * BOX, y_smem[s]);
        commit_stores();
        wait_read<0>();
    }
}

KATA_EXPORT void tma_transpose_swizzle_f32(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles_n = (N - 1) / TILE + 1;
    const CUtensorMap x_map = matrix_map(x, M, N, BOX, BOX, CU_TENSOR_MAP_SWIZZLE_128B);
    const CUtensorMap y_map = matrix_map(y, N, M, BOX, BOX, CU_TENSOR_MAP_SWIZZLE_128B);
    tma_transpose_swizzle_f32_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(x_map, y_map, tiles_m);
}
