// wgmma_ring_tn_f16: C = A @ B^T, the next slices are copied while one is multiplied
//
// Shapes     A: [M, K], B: [N, K], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  128 x 128 per warpgroup; a ring of slices of 64 by TMA, filled by one thread of the warpgroup
// New        over wgmma_tma_128x128_tn_f16: a ring of stages. A group of products stays in flight, so the Tensor Cores
//            never wait for the next one to be issued
// Bound      Tensor Cores, as far as one thread of four busy warps keeps the ring full
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::swizzled_map, kata::mbarrier_init, kata::expect, kata::wait, kata::load_box;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::wgmma_m64n128k16, kata::descriptor;

constexpr int WARPGROUP = 128;  // threads: four warps, the first of them a multiple of four
constexpr int MMA_K = 16;
constexpr int MMA_M = 64;
constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 64;               // a row of a tile is 128 bytes, the span of the swizzle
constexpr int TILES_M = BLOCK_M / MMA_M;  // products of 64 rows, one below the other
constexpr int GROUP_BYTES = 1024;         // eight rows: the pattern of the swizzle
constexpr int STAGE_BYTES = (BLOCK_M + BLOCK_N) * BLOCK_K * sizeof(half);
constexpr int STAGES = 4;
constexpr int AHEAD = STAGES - 1;  // slices between the one to multiply and the one to copy: a stage is still read

struct Ring {
    alignas(GROUP_BYTES) half A[STAGES][BLOCK_M * BLOCK_K];
    alignas(GROUP_BYTES) half B[STAGES][BLOCK_N * BLOCK_K];
    uint64_t full[STAGES];
};

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

__global__ void __launch_bounds__(WARPGROUP) wgmma_ring_tn_f16_kernel(
    const __grid_constant__ CUtensorMap A_map,  // [M, K]
    const __grid_constant__ CUtensorMap B_map,  // [N, K]
    half* __restrict__ C,                       // [M, N]
    int M, int N, int K) {
    alignas(GROUP_BYTES) extern __shared__ unsigned char smem[];
    Ring& ring = *reinterpret_cast<Ring*>(smem);
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int off_m = blockIdx.x / tiles_n * BLOCK_M;
    const int off_n = blockIdx.x % tiles_n * BLOCK_N;
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; ++s) mbarrier_init(&ring.full[s], 1);
    __syncthreads();
    const int slices = (K - 1) / BLOCK_K + 1;
    const auto load_slice = [&](int slice) {
        // TODO(1): Have both tiles of the slice copied to its stage. (~4 lines)
        // END TODO(1)
    };
    // TODO(2): Fill the ring as far as the loop does not: slices 0 to AHEAD - 1, if K has them. (~2 lines)
    // END TODO(2)
    float C_rmem[TILES_M][BLOCK_N / 2];
    for (int slice = 0; slice < slices; ++slice) {
        const int s = slice % STAGES;
        // TODO(3): Wait until this slice is in its stage. (~1 line)
        // END TODO(3)
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < BLOCK_K; step += MMA_K) {
            const uint64_t b = descriptor(&ring.B[s][step]);
#pragma unroll
            for (int m = 0; m < TILES_M; ++m)
                wgmma_m64n128k16(C_rmem[m], descriptor(&ring.A[s][m * MMA_M * BLOCK_K + step]), b, slice + step > 0);
        }
        wgmma_commit();
        // TODO(4): Let this slice's products run on, and wait for those of the slice before: in all warps. Its stage is
        //   the one to fill next, with the slice AHEAD of this one, if K has it. (~3 lines)
        // END TODO(4)
    }
    // TODO(5): Wait until C_rmem has all sums. (~1 line)
    // END TODO(5)
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) store_tile(C, C_rmem[m], off_m + m * MMA_M, off_n, M, N);
}

KATA_EXPORT void wgmma_ring_tn_f16(const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    const int blocks = ((M - 1) / BLOCK_M + 1) * ((N - 1) / BLOCK_N + 1);
    const CUtensorMap A_map = swizzled_map(A, M, K, BLOCK_M);
    const CUtensorMap B_map = swizzled_map(B, N, K, BLOCK_N);
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(wgmma_ring_tn_f16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    wgmma_ring_tn_f16_kernel<<<blocks, WARPGROUP, sizeof(Ring), stream>>>(A_map, B_map, C, M, N, K);
}
