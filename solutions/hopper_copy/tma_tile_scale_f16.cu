// tma_tile_scale_f16: y = a * x for a matrix, computed in the tile between two tensor copies
//
// Shapes     x, y: [M, N] f16, row-major, contiguous, 16-byte aligned bases, any M >= 1, N a multiple of 8, a float
// Technique  a box of 32 x 256 elements per block, by tensor maps; 128 threads multiply it in place, 16 bytes at a time
// New        over tma_tile_copy_f16: threads write what the copy engine reads. That takes a proxy fence and a barrier
// Bound      memory bandwidth
#include "kata.cuh"
#include "kata_tma.cuh"
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::matrix_map, kata::mbarrier_init, kata::expect, kata::wait, kata::load_box, kata::store_box,
    kata::commit_stores, kata::wait_read;

constexpr int BOX_ROWS = 32;
constexpr int BOX_COLS = 256;
constexpr int BOX = BOX_ROWS * BOX_COLS;
constexpr int BOX_BYTES = BOX * sizeof(half);
constexpr int THREADS = 128;
constexpr int PACK = 8;  // halves in 16 bytes

// Makes what this thread has written to shared memory visible to the copy engine (PTX ISA, "Async proxy").
__device__ inline void fence_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// a * x, each product rounded once to f16.
__device__ inline void scale_pack(__half2 (&pack)[PACK / 2], float a) {
#pragma unroll
    for (int i = 0; i < PACK / 2; ++i) {
        const float2 x = __half22float2(pack[i]);
        pack[i] = __floats2half2_rn(a * x.x, a * x.y);
    }
}

__global__ void __launch_bounds__(THREADS) tma_tile_scale_f16_kernel(
    const __grid_constant__ CUtensorMap x_map,  // [M, N]
    const __grid_constant__ CUtensorMap y_map,  // [M, N]
    float a, int boxes_n) {
    alignas(128) __shared__ half tile_smem[BOX];
    __shared__ uint64_t full;
    const int row = blockIdx.x / boxes_n * BOX_ROWS;
    const int col = blockIdx.x % boxes_n * BOX_COLS;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        expect(&full, BOX_BYTES);
        load_box(tile_smem, &x_map, col, row, &full);
    }
    // TODO(1): No thread waits at the barrier before it is initialised, or reads the tile before it is there.
    //   (~2 lines)
    __syncthreads();
    wait(&full, 0);
    // END TODO(1)
    for (int i = threadIdx.x * PACK; i < BOX; i += THREADS * PACK) {
        __half2 pack[PACK / 2];
        *reinterpret_cast<float4*>(pack) = *reinterpret_cast<const float4*>(&tile_smem[i]);
        scale_pack(pack, a);
        *reinterpret_cast<float4*>(&tile_smem[i]) = *reinterpret_cast<const float4*>(pack);
    }
    // TODO(2): Make what every thread has written visible to the copy engine. Only then may one thread store the box.
    //   The tile must live until it has been read. (~7 lines)
    // The fence is for the writes of the thread that executes it. So each writer fences, and the barrier comes after.
    fence_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
        store_box(&y_map, col, row, tile_smem);
        commit_stores();
        wait_read<0>();
    }
    // END TODO(2)
}

KATA_EXPORT void tma_tile_scale_f16(const half* x, half* y, int M, int N, float a, cudaStream_t stream) {
    const int boxes_m = (M - 1) / BOX_ROWS + 1;
    const int boxes_n = (N - 1) / BOX_COLS + 1;
    const CUtensorMap x_map = matrix_map(x, M, N, BOX_ROWS, BOX_COLS);
    const CUtensorMap y_map = matrix_map(y, M, N, BOX_ROWS, BOX_COLS);
    tma_tile_scale_f16_kernel<<<boxes_m * boxes_n, THREADS, 0, stream>>>(x_map, y_map, a, boxes_n);
}
