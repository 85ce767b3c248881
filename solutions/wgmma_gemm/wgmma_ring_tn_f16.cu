// wgmma_ring_tn_f16: C = A @ B^T, the next slices are copied while one is multiplied
//
// Shapes     A: [M, K], B: [N, K], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  128 x 128 per warpgroup; a ring of slices of 64 by TMA, filled by one thread of the warpgroup
// New        over wgmma_tma_128x128_tn_f16: a ring of stages. A group of products stays in flight, so the Tensor Cores
//            never wait for the next one to be issued
// Bound      Tensor Cores, as far as one thread of four busy warps keeps the ring full
#include "kata.cuh"
#include <cstdint>
#include <cstdio>
#include <cuda.h>
#include <cuda_fp16.h>

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

// The driver's function that makes tensor maps. The runtime looks it up, so nothing links the driver.
inline auto tensor_map_encoder() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &status);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

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

// The address of a place in shared memory as PTX instructions take it: 32 bits.
__device__ inline uint32_t smem_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// A phase of the barrier ends when count arrivals have come and all bytes that they announced. The fence makes the
// barrier visible to the copy engine (PTX ISA, "mbarrier.init", "membar / fence").
__device__ inline void mbarrier_init(uint64_t* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(bar)), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival, which announces bytes of copies (PTX ISA, "mbarrier.arrive", .expect_tx).
__device__ inline void expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(bar)), "r"(bytes)
                 : "memory");
}

// Waits until the phase of this parity has ended: 0 for the first phase, 1 for the second, 0 for the third.
__device__ inline void wait(uint64_t* bar, uint32_t parity) {
    asm volatile(
        "{\n .reg .pred p;\nAGAIN_%=:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @!p bra AGAIN_%=;\n}" ::
            "r"(smem_address(bar)),
        "r"(parity)
        : "memory");
}

// global -> shared: a box of the map's tensor, its first element at (row, col). The barrier counts all bytes of the
// box, also those outside of the tensor, which become 0 (PTX ISA, "cp.async.bulk.tensor": the innermost coordinate
// first).
__device__ inline void load_box(void* to, const CUtensorMap* map, int col, int row, uint64_t* bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(smem_address(to)),
        "l"(map), "r"(col), "r"(row), "r"(smem_address(bar))
        : "memory");
}

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

// What wgmma has to know of a tile whose rows are 128 bytes, swizzled, and which begins at a multiple of 1024: bits 0
// to 13 have its address, bits 32 to 45 the distance of groups of eight rows, both without their last four bits, bits
// 62 and 63 the swizzle (PTX ISA, "Matrix Descriptor Format").
__device__ inline uint64_t descriptor(const half* tile) {
    const uint64_t address = smem_address(tile);
    return (address & 0x3ffff) >> 4 | uint64_t{GROUP_BYTES >> 4} << 32 | uint64_t{1} << 62;
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
        const int s = slice % STAGES;
        expect(&ring.full[s], STAGE_BYTES);
        load_box(ring.A[s], &A_map, slice * BLOCK_K, off_m, &ring.full[s]);
        load_box(ring.B[s], &B_map, slice * BLOCK_K, off_n, &ring.full[s]);
        // END TODO(1)
    };
    // TODO(2): Fill the ring as far as the loop does not: slices 0 to AHEAD - 1, if K has them. (~2 lines)
    if (threadIdx.x == 0)
        for (int slice = 0; slice < min(AHEAD, slices); ++slice) load_slice(slice);
    // END TODO(2)
    float C_rmem[TILES_M][BLOCK_N / 2];
    for (int slice = 0; slice < slices; ++slice) {
        const int s = slice % STAGES;
        // TODO(3): Wait until this slice is in its stage. (~1 line)
        wait(&ring.full[s], slice / STAGES % 2);
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
        wgmma_wait<1>();
        __syncthreads();
        if (threadIdx.x == 0 && slice + AHEAD < slices) load_slice(slice + AHEAD);
        // END TODO(4)
    }
    // TODO(5): Wait until C_rmem has all sums. (~1 line)
    wgmma_wait<0>();
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
