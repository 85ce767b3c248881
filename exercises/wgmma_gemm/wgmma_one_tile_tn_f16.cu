// wgmma_one_tile_tn_f16: C = A @ B^T, 64 x 64 per warpgroup, on Tensor Cores by wgmma
//
// Shapes     A: [M, K], B: [N, K], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  one warpgroup per block; slices of 64 copied by threads into core matrices, which wgmma reads from shared
//            memory
// New        over hgemm_mma_m16n8k16_naive: four warps issue one product of 64 x 64 x 16. It reads shared memory itself
//            and runs while they go on
// Bound      latency: a slice is copied, then multiplied, with nothing in flight meanwhile
#include "kata.cuh"
#include "kata_tma.cuh"
#include <cstdint>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::smem_address, kata::fence_proxy;

constexpr int WARPGROUP = 128;  // threads: four warps, the first of them a multiple of four
constexpr int MMA_K = 16;
constexpr int BLOCK_M = 64;
constexpr int BLOCK_N = 64;
constexpr int BLOCK_K = 64;
constexpr int CHUNK = 8;                           // halves in 16 bytes
constexpr int CORE = 8 * CHUNK;                    // halves in a core matrix: eight rows of 16 bytes, 128 bytes on end
constexpr int CORES_K = BLOCK_K / CHUNK;           // core matrices side by side
constexpr int CHUNKS = BLOCK_M * BLOCK_K / CHUNK;  // of a tile
static_assert(BLOCK_M == BLOCK_N, "both tiles have as many chunks");

// Orders this warp's earlier accesses to registers before its next wgmma (PTX ISA, "wgmma.fence").
__device__ inline void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Makes a group of this warp's wgmma since the last commit.
__device__ inline void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most the PENDING newest groups of this warp are in flight. The sums of the others are in registers,
// and their tiles have been read.
template <int PENDING>
__device__ inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// c += a @ b for a [64, 16] and b [16, 64] in shared memory, c = a @ b where add is false. Warp w of the warpgroup has
// rows 16 w to 16 w + 15 of c, a lane the elements 4 j to 4 j + 3 of columns 8 j to 8 j + 7, as in mma.m16n8k16 (PTX
// ISA, "Register Fragments for wgmma.mma_async.m64nNk16").
__device__ inline void wgmma_m64n64k16(float (&c)[32], uint64_t a, uint64_t b, bool add) {
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %34, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 0, 0;\n}"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),
          "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),
          "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
          "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// What wgmma has to know of a tile without a swizzle: bits 0 to 13 its address, bits 16 to 29 and 32 to 45 the leading
// and the stride offset, all three in bytes without their last four bits (PTX ISA, "Matrix Descriptor Format").
__device__ inline uint64_t descriptor(const half* tile, int leading_bytes, int stride_bytes) {
    const uint64_t address = smem_address(tile);
    return (address & 0x3ffff) >> 4 | uint64_t(leading_bytes >> 4) << 16 | uint64_t(stride_bytes >> 4) << 32;
}

// global -> shared: the tile of X [rows, K] whose corner is at (off, off_k). Chunks outside of X count as 0. Chunk i of
// tile is row i % 8 of core matrix i / 8. Core matrices that are neighbours along K follow each other.
__device__ inline void load_tile(half* tile, const half* X, int off, int off_k, int rows, int K) {
#pragma unroll
    for (int step = 0; step < CHUNKS; step += WARPGROUP) {
        const int i = step + threadIdx.x;
        int row = 0;  // of chunk i in X, and its first column
        int col = 0;
        // TODO(1): Find row and column of chunk i. (~2 lines)
        // END TODO(1)
        uint4 chunk = make_uint4(0, 0, 0, 0);
        if (row < rows && col < K) chunk = reinterpret_cast<const uint4&>(X[int64_t{row} * K + col]);
        reinterpret_cast<uint4&>(tile[i * CHUNK]) = chunk;
    }
}

// registers -> global: a tile of 64 rows of C, as far as C has it. A warp has 16 of its rows. A lane has pairs of sums:
// the first two are 8 rows apart, the next two 8 columns to the right of these.
template <int SUMS>
__device__ inline void store_tile(half* C, const float (&sums)[SUMS], int off_m, int off_n, int M, int N) {
    // TODO(2): Store every pair of sums to its row and columns. (~9 lines)
    // END TODO(2)
}

__global__ void __launch_bounds__(WARPGROUP) wgmma_one_tile_tn_f16_kernel(
    const half* __restrict__ A,  // [M, K]
    const half* __restrict__ B,  // [N, K]
    half* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(128) __shared__ half A_smem[BLOCK_M * BLOCK_K];
    alignas(128) __shared__ half B_smem[BLOCK_N * BLOCK_K];
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int off_m = blockIdx.x / tiles_n * BLOCK_M;
    const int off_n = blockIdx.x % tiles_n * BLOCK_N;
    float C_rmem[BLOCK_N / 2];
    for (int k = 0; k < K; k += BLOCK_K) {
        load_tile(A_smem, A, off_m, k, M, K);
        load_tile(B_smem, B, off_n, k, N, K);
        // TODO(3): Multiply the slice: BLOCK_K / MMA_K products, each of two core matrices along K. The first product
        //   of all replaces C_rmem, the others add to it. Before them, all threads' chunks are written and visible to
        //   the async proxy. Afterwards C_rmem has the sums, and the tiles may be overwritten. (~13 lines)
        // END TODO(3)
    }
    store_tile(C, C_rmem, off_m, off_n, M, N);
}

KATA_EXPORT void wgmma_one_tile_tn_f16(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    const int blocks = ((M - 1) / BLOCK_M + 1) * ((N - 1) / BLOCK_N + 1);
    wgmma_one_tile_tn_f16_kernel<<<blocks, WARPGROUP, 0, stream>>>(A, B, C, M, N, K);
}
