// wgmma_tma_64x64_tn_f16: C = A @ B^T, tiles copied by TMA with the swizzle that wgmma reads
//
// Shapes     A: [M, K], B: [N, K], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  64 x 64 per block, one warpgroup; slices of 64, one stage, filled by one thread
// New        over wgmma_one_tile_tn_f16: the copy engine fills both tiles. Their rows are 128 bytes, swizzled
// Bound      latency: a slice is copied, then multiplied, with nothing in flight meanwhile
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <cstdint>
#include <cstdio>
#include <cuda.h>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::tensor_map_encoder, kata::smem_address, kata::mbarrier_init, kata::expect, kata::wait, kata::load_box;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait;

constexpr int WARPGROUP = 128;  // threads: four warps, the first of them a multiple of four
constexpr int MMA_K = 16;
constexpr int BLOCK_M = 64;
constexpr int BLOCK_N = 64;
constexpr int BLOCK_K = 64;        // a row of a tile is 128 bytes, the span of the swizzle
constexpr int GROUP_BYTES = 1024;  // eight rows: the pattern of the swizzle
constexpr int STAGE_BYTES = (BLOCK_M + BLOCK_N) * BLOCK_K * sizeof(half);

// A tensor map of a row-major matrix of halves. One copy moves a box of box_rows rows of BLOCK_K elements, 128 bytes,
// and permutes the 16-byte chunks of each row: chunk c of row r goes to place c ^ (r % 8).
inline CUtensorMap swizzled_map(const half* matrix, int rows, int cols, int box_rows) {
    // The innermost dimension first. Strides are in bytes, and the innermost has none: its elements are adjacent.
    const uint64_t dims[] = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)};
    const uint64_t strides[] = {cols * sizeof(half)};
    const uint32_t box[] = {BLOCK_K, static_cast<uint32_t>(box_rows)};
    const uint32_t element_strides[] = {1, 1};
    CUtensorMap map;
    const CUresult result = tensor_map_encoder()(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<half*>(matrix), dims, strides, box, element_strides,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) std::printf("cuTensorMapEncodeTiled refused the map: error %d\n", result);
    return map;
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

// What wgmma has to know of a tile whose rows are 128 bytes, swizzled (PTX ISA, "Matrix Descriptor Format").
__device__ inline uint64_t descriptor(const half* tile) {
    uint64_t bits = 0;
    // TODO(1): Bits 0 to 13 are the address, bits 32 to 45 the distance from eight rows to the next eight, in bytes
    //   without their last four bits. 1 in bits 62 and 63 is the 128-byte swizzle. (~2 lines)
    // END TODO(1)
    return bits;
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

__global__ void __launch_bounds__(WARPGROUP) wgmma_tma_64x64_tn_f16_kernel(
    const __grid_constant__ CUtensorMap A_map,  // [M, K]
    const __grid_constant__ CUtensorMap B_map,  // [N, K]
    half* __restrict__ C,                       // [M, N]
    int M, int N, int K) {
    // The swizzle follows the address. Its pattern repeats every 1024 bytes, and so do the descriptors' rows.
    alignas(1024) __shared__ half A_smem[BLOCK_M * BLOCK_K];
    alignas(1024) __shared__ half B_smem[BLOCK_N * BLOCK_K];
    __shared__ uint64_t full;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int off_m = blockIdx.x / tiles_n * BLOCK_M;
    const int off_n = blockIdx.x % tiles_n * BLOCK_N;
    if (threadIdx.x == 0) mbarrier_init(&full, 1);
    __syncthreads();
    float C_rmem[BLOCK_N / 2];
    const int slices = (K - 1) / BLOCK_K + 1;
    for (int slice = 0; slice < slices; ++slice) {
        // TODO(2): One thread has the slice of both tiles copied. All threads wait until it is there. At the edges the
        //   copy engine fills the boxes with zeros. (~6 lines)
        // END TODO(2)
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < BLOCK_K; step += MMA_K) {
            // TODO(3): Multiply columns step to step + MMA_K - 1 of both tiles: they begin that many bytes later in the
            //   first row, and the hardware applies the swizzle to the address. (~3 lines)
            // END TODO(3)
        }
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();  // all warps' products have read the tiles
    }
    store_tile(C, C_rmem, off_m, off_n, M, N);
}

KATA_EXPORT void wgmma_tma_64x64_tn_f16(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    const int blocks = ((M - 1) / BLOCK_M + 1) * ((N - 1) / BLOCK_N + 1);
    const CUtensorMap A_map = swizzled_map(A, M, K, BLOCK_M);
    const CUtensorMap B_map = swizzled_map(B, N, K, BLOCK_N);
    wgmma_tma_64x64_tn_f16_kernel<<<blocks, WARPGROUP, 0, stream>>>(A_map, B_map, C, M, N, K);
}
