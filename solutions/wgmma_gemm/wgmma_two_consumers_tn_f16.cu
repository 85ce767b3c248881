// wgmma_two_consumers_tn_f16: C = A @ B^T, two warpgroups multiply what one thread copies
//
// Shapes     A: [M, K], B: [N, K], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  128 x 256 per block; a producer warpgroup and two consumer warpgroups of 64 x 256 each; a ring of four
//            slices of 64
// New        over wgmma_producer_tn_f16: two consumers share the tile of B. The producer gives its registers to them
// Bound      Tensor Cores; at the end of its tile, a block stores and multiplies nothing
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::swizzled_map, kata::mbarrier_init, kata::expect, kata::arrive, kata::wait, kata::load_box;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::descriptor;

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

// The warps of this warpgroup give registers back, or get more (PTX ISA, "setmaxnreg").
template <int COUNT>
__device__ inline void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ inline void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// c += a @ b for a [64, 16] and b [16, 256] in shared memory, c = a @ b where add is false. Warp w of the warpgroup has
// rows 16 w to 16 w + 15 of c, a lane the elements 4 j to 4 j + 3 of columns 8 j to 8 j + 7, as in mma.m16n8k16 (PTX
// ISA, "Register Fragments for wgmma.mma_async.m64nNk16").
__device__ inline void wgmma_m64n256k16(float (&c)[128], uint64_t a, uint64_t b, bool add) {
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %130, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, p, 1, 1, 0, 0;\n}"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),
          "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),
          "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
          "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]),
          "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]),
          "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]),
          "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]),
          "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63]), "+f"(c[64]),
          "+f"(c[65]), "+f"(c[66]), "+f"(c[67]), "+f"(c[68]), "+f"(c[69]), "+f"(c[70]), "+f"(c[71]), "+f"(c[72]),
          "+f"(c[73]), "+f"(c[74]), "+f"(c[75]), "+f"(c[76]), "+f"(c[77]), "+f"(c[78]), "+f"(c[79]), "+f"(c[80]),
          "+f"(c[81]), "+f"(c[82]), "+f"(c[83]), "+f"(c[84]), "+f"(c[85]), "+f"(c[86]), "+f"(c[87]), "+f"(c[88]),
          "+f"(c[89]), "+f"(c[90]), "+f"(c[91]), "+f"(c[92]), "+f"(c[93]), "+f"(c[94]), "+f"(c[95]), "+f"(c[96]),
          "+f"(c[97]), "+f"(c[98]), "+f"(c[99]), "+f"(c[100]), "+f"(c[101]), "+f"(c[102]), "+f"(c[103]), "+f"(c[104]),
          "+f"(c[105]), "+f"(c[106]), "+f"(c[107]), "+f"(c[108]), "+f"(c[109]), "+f"(c[110]), "+f"(c[111]),
          "+f"(c[112]), "+f"(c[113]), "+f"(c[114]), "+f"(c[115]), "+f"(c[116]), "+f"(c[117]), "+f"(c[118]),
          "+f"(c[119]), "+f"(c[120]), "+f"(c[121]), "+f"(c[122]), "+f"(c[123]), "+f"(c[124]), "+f"(c[125]),
          "+f"(c[126]), "+f"(c[127])
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

__global__ void __launch_bounds__(THREADS, 1) wgmma_two_consumers_tn_f16_kernel(
    const __grid_constant__ CUtensorMap A_map,  // [M, K]
    const __grid_constant__ CUtensorMap B_map,  // [N, K]
    half* __restrict__ C,                       // [M, N]
    int M, int N, int K) {
    alignas(GROUP_BYTES) extern __shared__ unsigned char smem[];
    Ring& ring = *reinterpret_cast<Ring*>(smem);
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int off_m = blockIdx.x / tiles_n * BLOCK_M;
    const int off_n = blockIdx.x % tiles_n * BLOCK_N;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            // TODO(1): Initialise both barriers of the stage for as many arrivals per phase as there will be.
            //   (~2 lines)
            mbarrier_init(&ring.full[s], 1);
            mbarrier_init(&ring.empty[s], CONSUMERS * WARPGROUP);
            // END TODO(1)
        }
    }
    __syncthreads();
    const int slices = (K - 1) / BLOCK_K + 1;
    if (threadIdx.x < WARPGROUP) {
        fewer_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) {
            for (int slice = 0; slice < slices; ++slice) {
                const int s = slice % STAGES;
                wait(&ring.empty[s], slice / STAGES % 2 ^ 1);
                expect(&ring.full[s], STAGE_BYTES);
                load_box(ring.A[s], &A_map, slice * BLOCK_K, off_m, &ring.full[s]);
                load_box(ring.B[s], &B_map, slice * BLOCK_K, off_n, &ring.full[s]);
            }
        }
    } else {
        more_registers<CONSUMER_REGISTERS>();
        // TODO(2): Multiply this consumer's rows of every slice with all of B's tile, one group per slice. Say that a
        //   stage is empty when its products are done, while the next ones run. Then store the sums. (~16 lines)
        const int row = (threadIdx.x / WARPGROUP - 1) * MMA_M;  // of the tile of A
        float C_rmem[BLOCK_N / 2];
        for (int slice = 0; slice < slices; ++slice) {
            const int s = slice % STAGES;
            wait(&ring.full[s], slice / STAGES % 2);
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < BLOCK_K; step += MMA_K) {
                const uint64_t a = descriptor(&ring.A[s][row * BLOCK_K + step]);
                wgmma_m64n256k16(C_rmem, a, descriptor(&ring.B[s][step]), slice + step > 0);
            }
            wgmma_commit();
            wgmma_wait<1>();
            if (slice > 0) arrive(&ring.empty[(slice - 1) % STAGES]);
        }
        wgmma_wait<0>();
        store_tile(C, C_rmem, off_m + row, off_n, M, N);
        // END TODO(2)
    }
}

KATA_EXPORT void wgmma_two_consumers_tn_f16(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    const int blocks = ((M - 1) / BLOCK_M + 1) * ((N - 1) / BLOCK_N + 1);
    const CUtensorMap A_map = swizzled_map(A, M, K, BLOCK_M);
    const CUtensorMap B_map = swizzled_map(B, N, K, BLOCK_N);
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(wgmma_two_consumers_tn_f16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    wgmma_two_consumers_tn_f16_kernel<<<blocks, THREADS, sizeof(Ring), stream>>>(A_map, B_map, C, M, N, K);
}
