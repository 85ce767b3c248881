// wgmma_fp8_tn: C = A @ B^T for A and B in e4m3, twice the operations per cycle, and sums of 14 bits
//
// Shapes     A: [M, K], B: [N, K] e4m3, C: [M, N] bf16, row-major, contiguous, 16-byte aligned bases, N a multiple of
//            8, K of 16
// Technique  128 x 256 per block at a time, 256 x 256 per cluster of two blocks, in strips of 8, there and back; a
//            producer and two consumer warpgroups per block, which alternate; a ring of four slices of 128, two boxes
//            of C per warp
// New        over wgmma_best_tn_bf16: an element of A or B is a byte, so the same bytes are twice the k. The Tensor
//            Cores add the products of e4m3 with 13 bits after the first, and the tolerance is as wide as that
// Bound      Tensor Cores, and the power that the card may use
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <cstdint>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

// From kata_tma.cuh:
using kata::swizzled_map, kata::mbarrier_init, kata::expect, kata::arrive_at, kata::wait, kata::load_box,
    kata::multicast_box, kata::store_box, kata::commit_stores, kata::wait_read, kata::fence_proxy, kata::cluster_rank,
    kata::cluster_sync;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::descriptor, kata::stmatrix_x4,
    kata::fewer_registers, kata::more_registers;

constexpr unsigned FULL_MASK = 0xffffffff;
constexpr int WARPGROUP = 128;  // threads: four warps, the first of them a multiple of four
constexpr int MMA_K = 32;
constexpr int MMA_M = 64;
constexpr int CONSUMERS = 2;  // warpgroups; each has MMA_M rows of the tile
constexpr int BLOCK_M = CONSUMERS * MMA_M;
constexpr int BLOCK_N = 256;
constexpr int BLOCK_K = 128;       // a row of a tile is 128 bytes, the span of the swizzle
constexpr int GROUP_BYTES = 1024;  // eight rows: the pattern of the swizzle
constexpr int STAGE_BYTES = (BLOCK_M + BLOCK_N) * BLOCK_K;
constexpr int STAGES = 4;
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;  // the producer's warpgroup, then the consumers'
constexpr int CLUSTER = 2;                            // blocks, one below the other in C: they need the same tile of B
constexpr int PART_N = BLOCK_N / CLUSTER;             // rows of B that each of them loads, for all of them
constexpr int BOX_N = 64;                             // columns of C in a box: 128 bytes
constexpr int BOX_M = 16;                             // rows of C in a box: those of a warp
constexpr int PARTS = BLOCK_N / BOX_N;                // boxes of a warp's tile
constexpr int BOXES = 2;                              // per warp, in flight to C
constexpr int STRIP = 8;                              // rows of the clusters' tiles
constexpr int CHUNK = 8;                              // elements of C in 16 bytes
constexpr int K_CHUNK = 16;                           // elements of A or B
// Distances in units of 16 bytes, as a descriptor's address has them, from stage to stage.
constexpr uint64_t A_STAGE = BLOCK_M * BLOCK_K / K_CHUNK;
constexpr uint64_t B_STAGE = BLOCK_N * BLOCK_K / K_CHUNK;
// A block of 384 threads starts with 168 registers per thread: 65536 / 384, rounded down to a multiple of eight.
constexpr int PRODUCER_REGISTERS = 40;
constexpr int CONSUMER_REGISTERS = 232;
static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= (1 + CONSUMERS) * 168, "the SM has no more");

// c += a @ b for a [64, 32] and b [32, 256] of e4m3 in shared memory, c = a @ b where add is false. The sums are where
// those of wgmma_m64n256k16 are.
__device__ inline void wgmma_m64n256k32_e4m3(float (&c)[128], uint64_t a, uint64_t b, bool add) {
    // TODO(1): Multiply by the instruction for e4m3. Which immediates does it not have? (~30 lines)
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %130, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, p, 1, 1;\n}"
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
    // END TODO(1)
}

struct Ring {
    alignas(GROUP_BYTES) __nv_fp8_e4m3 A[STAGES][BLOCK_M * BLOCK_K];
    alignas(GROUP_BYTES) __nv_fp8_e4m3 B[STAGES][BLOCK_N * BLOCK_K];
    alignas(GROUP_BYTES) __nv_bfloat16 C[CONSUMERS * WARPGROUP / 32][BOXES][BOX_M * BOX_N];
    uint64_t full[STAGES];   // a phase ends when the slice is there,
    uint64_t empty[STAGES];  // and when it has been multiplied
};

// A stage of the ring, and the parity of its current phase. Producer and consumers each have their own.
struct Turn {
    int s;
    uint32_t parity;
    __device__ inline void next() {
        s = s + 1 < STAGES ? s + 1 : 0;
        parity ^= s == 0;
    }
};

// Barrier 1 + c is for consumer c. It waits there for the other consumer, whose threads arrive and go on. Barrier 0 is
// __syncthreads.
__device__ inline void wait_for_other(int consumer) {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + consumer), "n"(CONSUMERS * WARPGROUP) : "memory");
}
__device__ inline void let_other_go(int consumer) {
    asm volatile("bar.arrive %0, %1;" ::"r"(2 - consumer), "n"(CONSUMERS * WARPGROUP) : "memory");
}

// A warp's 16 rows of a tile that has been multiplied, and their place in C: BOX_N columns per part, in pairs of two
// adjacent columns.
struct Finished {
    __nv_bfloat162 pairs[PARTS][BOX_N / 4];
    int off_m;
    int off_n;
};

// registers -> shared -> global: a part of a warp's tile, by way of one of the warp's boxes.
__device__ inline void store_part(
    __nv_bfloat16 (&boxes)[BOXES][BOX_M * BOX_N], const Finished& tile, int part, const CUtensorMap* C_map) {
    const int lane_id = threadIdx.x % 32;
    const int row = lane_id % 16;  // that this lane names to stmatrix
    __nv_bfloat16* box = boxes[part % BOXES];
    if (lane_id == 0) wait_read<BOXES - 1>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < BOX_N; i += 16) {
        const __nv_bfloat162* pairs = &tile.pairs[part][i / 4];
        const int chunk = i / CHUNK + lane_id / 16;
        stmatrix_x4(&box[row * BOX_N + (chunk ^ row % 8) * CHUNK], {pairs[0], pairs[1], pairs[2], pairs[3]});
    }
    fence_proxy();
    __syncwarp();
    if (lane_id == 0) {
        store_box(C_map, tile.off_n + part * BOX_N, tile.off_m, box);
        commit_stores();
    }
}

// The place of a tile in C, in tiles. Consecutive tiles go down a strip of STRIP rows of tiles, then right, in every
// other strip left: tiles that run at the same time need few rows of A and of B, and these stay in L2.
__device__ inline int2 place_of(int tile, int tiles_m, int tiles_n) {
    int m = 0;
    int n = 0;
    const int strip = tile / (STRIP * tiles_n);
    const int height = min(STRIP, tiles_m - strip * STRIP);
    const int place = tile - strip * STRIP * tiles_n;
    m = strip * STRIP + place % height;
    n = place / height;
    if (strip % 2 == 1) n = tiles_n - 1 - n;
    return make_int2(m, n);
}

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1) wgmma_fp8_tn_kernel(
    const __grid_constant__ CUtensorMap A_map,  // [M, K]
    const __grid_constant__ CUtensorMap B_map,  // [N, K]
    const __grid_constant__ CUtensorMap C_map,  // [M, N]
    int M, int N, int K) {
    alignas(GROUP_BYTES) extern __shared__ unsigned char smem[];
    Ring& ring = *reinterpret_cast<Ring*>(smem);
    // The cluster's tile is CLUSTER tiles of BLOCK_M rows, one below the other. Each block has one of them.
    const int rank = cluster_rank();
    const int first = blockIdx.x / CLUSTER;
    const int clusters = gridDim.x / CLUSTER;
    const int tiles_m = (M - 1) / (CLUSTER * BLOCK_M) + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int tiles = tiles_m * tiles_n;
    const int slices = (K - 1) / BLOCK_K + 1;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&ring.full[s], 1);
            mbarrier_init(&ring.empty[s], CLUSTER * CONSUMERS);
        }
    }
    cluster_sync();  // no block uses barriers of the other before they are initialised
    if (threadIdx.x < WARPGROUP) {
        fewer_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) {
            Turn turn{0, 1};  // a wait for parity 1 of a fresh barrier returns at once
            bool back = false;
            for (int tile = first; tile < tiles; tile += clusters, back = !back) {
                const int2 place = place_of(tile, tiles_m, tiles_n);
                const int off_m = (place.x * CLUSTER + rank) * BLOCK_M;
                const int off_n = place.y * BLOCK_N;
                for (int i = 0; i < slices; ++i, turn.next()) {
                    uint64_t* full = &ring.full[turn.s];
                    int slice = i;
                    if (back) slice = slices - 1 - i;
                    wait(&ring.empty[turn.s], turn.parity);
                    expect(full, STAGE_BYTES);
                    load_box(ring.A[turn.s], &A_map, slice * BLOCK_K, off_m, full);
                    multicast_box(
                        &ring.B[turn.s][rank * PART_N * BLOCK_K], &B_map, slice * BLOCK_K, off_n + rank * PART_N, full,
                        (1 << CLUSTER) - 1);
                }
            }
        }
    } else {
        more_registers<CONSUMER_REGISTERS>();
        // All lanes have the same. After a shuffle the compiler knows that, and has descriptors in uniform registers.
        const int consumer = __shfl_sync(FULL_MASK, threadIdx.x / WARPGROUP - 1, 0);
        const int row = consumer * MMA_M;  // of the tile of A
        const uint64_t A_first = descriptor(&ring.A[0][row * BLOCK_K]);
        const uint64_t B_first = descriptor(ring.B[0]);
        const auto release = [&](int s) {
            if (threadIdx.x % WARPGROUP < CLUSTER) arrive_at(&ring.empty[s], threadIdx.x % WARPGROUP);
        };
        const int warp_id = threadIdx.x / 32 - WARPGROUP / 32;  // among the consumers' warps
        __nv_bfloat16(&boxes)[BOXES][BOX_M * BOX_N] = ring.C[warp_id];
        Finished finished;
        Turn turn{0, 0};
        if (consumer == 1) let_other_go(consumer);
        for (int tile = first; tile < tiles; tile += clusters) {
            float C_rmem[BLOCK_N / 2];
            int before = 0;  // the stage of the slice before
            const auto multiply = [&](int slice) {
                wait(&ring.full[turn.s], turn.parity);
                const uint64_t a = A_first + turn.s * A_STAGE;
                const uint64_t b = B_first + turn.s * B_STAGE;
                // TODO(2): Multiply the slice in this consumer's turn. Its first product is a group of its own, under
                //   which the stage before is released. What is a step now, in k and in bytes? (~13 lines)
                wait_for_other(consumer);
                wgmma_fence();
#pragma unroll
                for (int step = 0; step < BLOCK_K; step += MMA_K) {
                    wgmma_m64n256k32_e4m3(C_rmem, a + step / K_CHUNK, b + step / K_CHUNK, slice + step > 0);
                    if (step == 0) {
                        wgmma_commit();
                        wgmma_wait<1>();
                        if (slice > 0) release(before);
                    }
                }
                wgmma_commit();
                let_other_go(consumer);
                // END TODO(2)
                before = turn.s;
                turn.next();
            };
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                if (part < slices) multiply(part);
                if (tile > first) store_part(boxes, finished, part, &C_map);
            }
            for (int slice = PARTS; slice < slices; ++slice) multiply(slice);
            wgmma_wait<0>();
            release(before);
            const int2 place = place_of(tile, tiles_m, tiles_n);
#pragma unroll
            for (int i = 0; i < BLOCK_N / 4; ++i)
                finished.pairs[i / (BOX_N / 4)][i % (BOX_N / 4)] =
                    __floats2bfloat162_rn(C_rmem[2 * i], C_rmem[2 * i + 1]);
            finished.off_m = (place.x * CLUSTER + rank) * BLOCK_M + warp_id * BOX_M;
            finished.off_n = place.y * BLOCK_N;
        }
#pragma unroll
        for (int part = 0; part < PARTS; ++part) store_part(boxes, finished, part, &C_map);
        if (threadIdx.x % 32 == 0) wait_read<0>();
    }
    cluster_sync();  // no block exits while the other may still arrive at its barriers
}

KATA_EXPORT void wgmma_fp8_tn(
    const __nv_fp8_e4m3* A, const __nv_fp8_e4m3* B, __nv_bfloat16* C, int M, int N, int K, cudaStream_t stream) {
    int device = 0;
    int sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    const int tiles = ((M - 1) / (CLUSTER * BLOCK_M) + 1) * ((N - 1) / BLOCK_N + 1);
    const int most = sms / CLUSTER;  // clusters at a time
    int clusters = tiles < most ? tiles : most;
    const int rounds = (tiles - 1) / most + 1;
    clusters = (tiles - 1) / rounds + 1;
    const CUtensorMap A_map = swizzled_map(A, M, K, BLOCK_M);
    const CUtensorMap B_map = swizzled_map(B, N, K, PART_N);
    const CUtensorMap C_map = swizzled_map(C, M, N, BOX_M);
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(wgmma_fp8_tn_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    wgmma_fp8_tn_kernel<<<CLUSTER * clusters, THREADS, sizeof(Ring), stream>>>(A_map, B_map, C_map, M, N, K);
}
