// wgmma_persistent_tn_f16: C = A @ B^T, one block per SM computes many tiles
//
// Shapes     A: [M, K], B: [N, K], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  128 x 256 per block at a time, in strips of 8 tiles; a producer and two consumer warpgroups; a ring of
//            four slices of 64
// New        over wgmma_two_consumers_tn_f16: a block stays for many tiles. While it stores one, the ring fills with
//            the next one
// Bound      Tensor Cores; while both consumers store, nothing is multiplied
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::swizzled_map, kata::mbarrier_init, kata::expect, kata::arrive, kata::wait, kata::load_box;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::wgmma_m64n256k16, kata::descriptor,
    kata::fewer_registers, kata::more_registers;

constexpr int WARPGROUP = 128;  // threads: four warps, the first of them a multiple of four
constexpr int MMA_K = 16;
constexpr int MMA_M = 64;
constexpr int CONSUMERS = 2;  // warpgroups; each has MMA_M rows of the tile
constexpr int BLOCK_M = CONSUMERS * MMA_M;
constexpr int BLOCK_N = 256;
constexpr int BLOCK_K = 64;        // a row of a tile is 128 bytes, the span of the swizzle
constexpr int GROUP_BYTES = 1024;  // eight rows: the pattern of the swizzle
constexpr int STAGE_BYTES = (BLOCK_M + BLOCK_N) * BLOCK_K * sizeof(half);
constexpr int STAGES = 4;
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;  // the producer's warpgroup, then the consumers'
constexpr int STRIP = 8;                              // rows of tiles
// A block of 384 threads starts with 168 registers per thread: 65536 / 384, rounded down to a multiple of eight.
constexpr int PRODUCER_REGISTERS = 40;
constexpr int CONSUMER_REGISTERS = 232;
static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= (1 + CONSUMERS) * 168, "the SM has no more");

struct Ring {
    alignas(GROUP_BYTES) half A[STAGES][BLOCK_M * BLOCK_K];
    alignas(GROUP_BYTES) half B[STAGES][BLOCK_N * BLOCK_K];
    uint64_t full[STAGES];   // a phase ends when the slice is there,
    uint64_t empty[STAGES];  // and when it has been multiplied
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

// The place of a tile in C, in tiles. Consecutive tiles go down a strip of STRIP rows of tiles, then right: what runs
// at the same time needs few rows of A and of B, which stay in L2.
__device__ inline int2 place_of(int tile, int tiles_m, int tiles_n) {
    int m = 0;
    int n = 0;
    // TODO(1): Find the tile's row and column. The last strip may have fewer rows than STRIP. (~5 lines)
    // END TODO(1)
    return make_int2(m, n);
}

__global__ void __launch_bounds__(THREADS, 1) wgmma_persistent_tn_f16_kernel(
    const __grid_constant__ CUtensorMap A_map,  // [M, K]
    const __grid_constant__ CUtensorMap B_map,  // [N, K]
    half* __restrict__ C,                       // [M, N]
    int M, int N, int K) {
    alignas(GROUP_BYTES) extern __shared__ unsigned char smem[];
    Ring& ring = *reinterpret_cast<Ring*>(smem);
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int tiles = tiles_m * tiles_n;
    const int slices = (K - 1) / BLOCK_K + 1;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&ring.full[s], 1);
            mbarrier_init(&ring.empty[s], CONSUMERS * WARPGROUP);
        }
    }
    __syncthreads();
    if (threadIdx.x < WARPGROUP) {
        fewer_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) {
            int filled = 0;  // stages, since the kernel began
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
                const int2 place = place_of(tile, tiles_m, tiles_n);
                for (int slice = 0; slice < slices; ++slice, ++filled) {
                    // TODO(2): Wait for the stage that is next in the ring, and fill it. (~5 lines)
                    // END TODO(2)
                }
            }
        }
    } else {
        more_registers<CONSUMER_REGISTERS>();
        const int row = (threadIdx.x / WARPGROUP - 1) * MMA_M;  // of the tile of A
        int used = 0;                                           // stages, since the kernel began
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const int2 place = place_of(tile, tiles_m, tiles_n);
            float C_rmem[BLOCK_N / 2];
            // TODO(3): Multiply all slices of the tile. Each of its stages is empty before the tile is stored: the
            //   producer waits for the last one, too. The sums begin again with every tile. (~16 lines)
            // END TODO(3)
            store_tile(C, C_rmem, place.x * BLOCK_M + row, place.y * BLOCK_N, M, N);
        }
    }
}

KATA_EXPORT void wgmma_persistent_tn_f16(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    int device = 0;
    int sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    const int tiles = ((M - 1) / BLOCK_M + 1) * ((N - 1) / BLOCK_N + 1);
    const int blocks = tiles < sms ? tiles : sms;
    const CUtensorMap A_map = swizzled_map(A, M, K, BLOCK_M);
    const CUtensorMap B_map = swizzled_map(B, N, K, BLOCK_N);
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(wgmma_persistent_tn_f16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    wgmma_persistent_tn_f16_kernel<<<blocks, THREADS, sizeof(Ring), stream>>>(A_map, B_map, C, M, N, K);
}
