// wgmma_tma_128x128_tn_f16: C = A @ B^T, 128 x 128 per warpgroup
//
// Shapes     A: [M, K], B: [N, K], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  128 x 128 per block, one warpgroup, two products of 64 x 128 x 16 per step; slices of 64 by TMA, one stage
// New        over wgmma_tma_64x64_tn_f16: a tile with four times the sums has twice the bytes, so half of them per
//            product
// Bound      latency: blocks on the same SM hide a part of it
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::swizzled_map, kata::mbarrier_init, kata::expect, kata::wait, kata::load_box;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::descriptor;

constexpr int WARPGROUP = 128;  // threads: four warps, the first of them a multiple of four
constexpr int MMA_K = 16;
constexpr int MMA_M = 64;
constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 64;               // a row of a tile is 128 bytes, the span of the swizzle
constexpr int TILES_M = BLOCK_M / MMA_M;  // products of 64 rows, one below the other
constexpr int STAGE_BYTES = (BLOCK_M + BLOCK_N) * BLOCK_K * sizeof(half);

// c += a @ b for a [64, 16] and b [16, 128] in shared memory, c = a @ b where add is false. Warp w of the warpgroup has
// rows 16 w to 16 w + 15 of c, a lane the elements 4 j to 4 j + 3 of columns 8 j to 8 j + 7, as in mma.m16n8k16 (PTX
// ISA, "Register Fragments for wgmma.mma_async.m64nNk16").
__device__ inline void wgmma_m64n128k16(float (&c)[64], uint64_t a, uint64_t b, bool add) {
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %66, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1, 0, 0;\n}"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),
          "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),
          "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
          "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]),
          "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]),
          "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]),
          "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]),
          "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// registers -> global: a tile of 64 rows of C, as far as C has it. A warp has 16 of its rows. A lane has pairs of sums:
// the first two are 8 rows apart, the next two 8 columns to the right of these.
template <int SUMS>
__device__ inline void store_tile(half* C, const float (&sums)[SUMS], int off_m, int off_n, int M, int N) {
    const int lane_id = threadIdx.x % 32;
    const int row = off_m + threadIdx.x % WARPGROUP / 32 * 16 + lane_id / 4;
    const int col = off_n + lane_id % 4 * 2;
#pragma unroll
    for (int i = 0; i < SUMS / 2; ++i) {
        const int r = row + i % 2 * 8;
        const int c = col + i / 2 * 8;
        const half2 pair = __floats2half2_rn(sums[2 * i], sums[2 * i + 1]);
        if (r < M && c < N) reinterpret_cast<half2&>(C[int64_t{r} * N + c]) = pair;
    }
}

__global__ void __launch_bounds__(WARPGROUP) wgmma_tma_128x128_tn_f16_kernel(
    const __grid_constant__ CUtensorMap A_map,  // [M, K]
    const __grid_constant__ CUtensorMap B_map,  // [N, K]
    half* __restrict__ C,                       // [M, N]
    int M, int N, int K) {
    alignas(1024) __shared__ half A_smem[BLOCK_M * BLOCK_K];
    alignas(1024) __shared__ half B_smem[BLOCK_N * BLOCK_K];
    __shared__ uint64_t full;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int off_m = blockIdx.x / tiles_n * BLOCK_M;
    const int off_n = blockIdx.x % tiles_n * BLOCK_N;
    if (threadIdx.x == 0) mbarrier_init(&full, 1);
    __syncthreads();
    float C_rmem[TILES_M][BLOCK_N / 2];
    const int slices = (K - 1) / BLOCK_K + 1;
    for (int slice = 0; slice < slices; ++slice) {
        if (threadIdx.x == 0) {
            expect(&full, STAGE_BYTES);
            load_box(A_smem, &A_map, slice * BLOCK_K, off_m, &full);
            load_box(B_smem, &B_map, slice * BLOCK_K, off_n, &full);
        }
        wait(&full, slice % 2);
        wgmma_fence();
        // TODO(1): Add the products of the slice to the sums of all TILES_M tiles of MMA_M rows. (~8 lines)
#pragma unroll
        for (int step = 0; step < BLOCK_K; step += MMA_K) {
            const uint64_t b = descriptor(&B_smem[step]);
#pragma unroll
            for (int m = 0; m < TILES_M; ++m)
                wgmma_m64n128k16(C_rmem[m], descriptor(&A_smem[m * MMA_M * BLOCK_K + step]), b, slice + step > 0);
        }
        // END TODO(1)
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();  // all warps' products have read the tiles
    }
    // TODO(2): Store all tiles. (~2 lines)
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) store_tile(C, C_rmem[m], off_m + m * MMA_M, off_n, M, N);
    // END TODO(2)
}

KATA_EXPORT void wgmma_tma_128x128_tn_f16(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    const int blocks = ((M - 1) / BLOCK_M + 1) * ((N - 1) / BLOCK_N + 1);
    const CUtensorMap A_map = swizzled_map(A, M, K, BLOCK_M);
    const CUtensorMap B_map = swizzled_map(B, N, K, BLOCK_N);
    wgmma_tma_128x128_tn_f16_kernel<<<blocks, WARPGROUP, 0, stream>>>(A_map, B_map, C, M, N, K);
}
