// wgmma_fp8_block_scaled_tn: C = A @ B^T for A and B in e4m3, a scale per 128 k of a row of A and per 128 x 128 of B
//
// Shapes     A: [M, K] e4m3, sa: [K / 128, M] f32, B: [N, K] e4m3, sb: [N / 128, K / 128] f32, C: [M, N] bf16,
//            row-major, contiguous, 16-byte aligned bases, M a multiple of 4, N = 128 blocks_n, K = 128 blocks_k
// Technique  128 x 256 per block at a time, 256 x 256 per cluster of two blocks, in strips of 8, there and back; a
//            producer and two consumer warpgroups per block; a ring of four slices of 128, two boxes of C per warp
// New        over wgmma_fp8_promoted_tn: the sums of 128 k are multiplied by their scales when they are added. Those
//            of A come with the slice. Threads read them, so every warp says when it has read the stage
// Bound      Tensor Cores, and the power that the card may use
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <cstdint>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

// From kata_tma.cuh:
using kata::matrix_map, kata::swizzled_map, kata::mbarrier_init, kata::expect, kata::arrive_at, kata::wait,
    kata::load_box, kata::multicast_box, kata::store_box, kata::commit_stores, kata::wait_read, kata::fence_proxy,
    kata::cluster_rank, kata::cluster_sync;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::wgmma_m64n128k32_e4m3, kata::descriptor,
    kata::stmatrix_x4, kata::fewer_registers, kata::more_registers;

constexpr unsigned FULL_MASK = 0xffffffff;
constexpr int WARPGROUP = 128;  // threads: four warps, the first of them a multiple of four
constexpr int MMA_K = 32;
constexpr int MMA_M = 64;
constexpr int MMA_N = 128;
constexpr int CONSUMERS = 2;  // warpgroups; each has MMA_N columns of the tile,
constexpr int HALVES = 2;     // and multiplies an upper and a lower half of MMA_M rows, one after the other
constexpr int BLOCK_M = HALVES * MMA_M;
constexpr int BLOCK_N = CONSUMERS * MMA_N;
constexpr int BLOCK_K = 128;       // k that share their scales; a row of a tile is 128 bytes, the span of the swizzle
constexpr int GROUP_BYTES = 1024;  // eight rows: the pattern of the swizzle
constexpr int STAGE_BYTES = (BLOCK_M + BLOCK_N) * BLOCK_K + BLOCK_M * sizeof(float);
constexpr int STAGES = 4;
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;  // the producer's warpgroup, then the consumers'
constexpr int CLUSTER = 2;                            // blocks, one below the other in C: they need the same tile of B
constexpr int PART_N = BLOCK_N / CLUSTER;             // rows of B that each of them loads, for all of them
constexpr int BOX_N = 64;                             // columns of C in a box: 128 bytes
constexpr int BOX_M = 16;                             // rows of C in a box: those of a warp
constexpr int PARTS = MMA_N / BOX_N;                  // boxes of a warp's half of a tile
constexpr int BOXES = 2;                              // per warp, in flight to C
constexpr int STRIP = 8;                              // rows of the clusters' tiles
constexpr int CHUNK = 8;                              // elements of C in 16 bytes
constexpr int K_CHUNK = 16;                           // elements of A or B
// Distances in units of 16 bytes, as a descriptor's address has them: from half to half, and from stage to stage.
constexpr uint64_t A_HALF = MMA_M * BLOCK_K / K_CHUNK;
constexpr uint64_t A_STAGE = BLOCK_M * BLOCK_K / K_CHUNK;
constexpr uint64_t B_STAGE = BLOCK_N * BLOCK_K / K_CHUNK;
// A block of 384 threads starts with 168 registers per thread: 65536 / 384, rounded down to a multiple of eight.
constexpr int PRODUCER_REGISTERS = 40;
constexpr int CONSUMER_REGISTERS = 232;
static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= (1 + CONSUMERS) * 168, "the SM has no more");

struct Ring {
    alignas(GROUP_BYTES) __nv_fp8_e4m3 A[STAGES][BLOCK_M * BLOCK_K];
    alignas(GROUP_BYTES) __nv_fp8_e4m3 B[STAGES][BLOCK_N * BLOCK_K];
    alignas(GROUP_BYTES) __nv_bfloat16 C[CONSUMERS * WARPGROUP / 32][BOXES][BOX_M * BOX_N];
    alignas(128) float sa[STAGES][BLOCK_M];  // a scale for each row of the slice of A
    uint64_t full[STAGES];                   // a phase ends when the slice is there,
    uint64_t empty[STAGES];                  // and when it has been multiplied
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

// registers -> shared -> global: 16 rows of MMA_N columns, a warp's part of a half, to row off_m and column off_n of C.
__device__ inline void store_half(
    __nv_bfloat16 (&boxes)[BOXES][BOX_M * BOX_N], const float (&C_rmem)[MMA_N / 2], int off_m, int off_n,
    const CUtensorMap* C_map) {
    const int lane_id = threadIdx.x % 32;
    const int row = lane_id % 16;  // that this lane names to stmatrix
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        __nv_bfloat16* box = boxes[part % BOXES];
        if (lane_id == 0) wait_read<BOXES - 1>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < BOX_N; i += 16) {
            const float* sums = &C_rmem[(part * BOX_N + i) / 2];
            const int chunk = i / CHUNK + lane_id / 16;
            stmatrix_x4(
                &box[row * BOX_N + (chunk ^ row % 8) * CHUNK],
                {__floats2bfloat162_rn(sums[0], sums[1]), __floats2bfloat162_rn(sums[2], sums[3]),
                 __floats2bfloat162_rn(sums[4], sums[5]), __floats2bfloat162_rn(sums[6], sums[7])});
        }
        fence_proxy();
        __syncwarp();
        if (lane_id == 0) {
            store_box(C_map, off_n + part * BOX_N, off_m, box);
            commit_stores();
        }
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

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1) wgmma_fp8_block_scaled_tn_kernel(
    const __grid_constant__ CUtensorMap A_map,   // [M, K]
    const __grid_constant__ CUtensorMap B_map,   // [N, K]
    const __grid_constant__ CUtensorMap C_map,   // [M, N]
    const __grid_constant__ CUtensorMap sa_map,  // [K / 128, M]
    const float* __restrict__ sb,                // [N / 128, K / 128]
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
    const int slices = K / BLOCK_K;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&ring.full[s], 1);
            // TODO(1): A phase of empty ends when every warp, in both blocks, that reads what this block's producer
            //   loads has arrived once. (~1 line)
            mbarrier_init(&ring.empty[s], CLUSTER * CONSUMERS * WARPGROUP / 32);
            // END TODO(1)
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
                    // TODO(2): Load the scales that this slice has for the block's rows. full counts them. (~1 line)
                    load_box(ring.sa[turn.s], &sa_map, off_m, slice, full);
                    // END TODO(2)
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
        const uint64_t A_first = descriptor(ring.A[0]);
        const uint64_t B_first = descriptor(&ring.B[0][consumer * MMA_N * BLOCK_K]);
        const int lane_id = threadIdx.x % 32;
        const auto release = [&](int s) {
            // TODO(3): Arrive once for this warp at empty of stage s in each block, when all of its lanes have read
            //   their scales. (~2 lines)
            __syncwarp();
            if (lane_id < CLUSTER) arrive_at(&ring.empty[s], lane_id);
            // END TODO(3)
        };
        __nv_bfloat16(&boxes)[BOXES][BOX_M * BOX_N] = ring.C[threadIdx.x / 32 - WARPGROUP / 32];
        float C_rmem[HALVES][MMA_N / 2] = {};
        int off_m = 0;  // where this warp's rows of the upper half begin in C, and its columns
        int off_n = 0;
        // Stores a half of a tile that has been multiplied, and begins that of the next tile with zeros.
        const auto store = [&](int half) {
            store_half(boxes, C_rmem[half], off_m + half * MMA_M, off_n, &C_map);
#pragma unroll
            for (float& sum : C_rmem[half]) sum = 0;
        };
        Turn turn{0, 0};
        bool back = false;
        for (int tile = first; tile < tiles; tile += clusters, back = !back) {
            const int2 place = place_of(tile, tiles_m, tiles_n);
            // A block has an even number of 128 columns, C perhaps not: then nothing is stored of the last ones.
            // threadIdx.x and not consumer: the compiler would move a scale that is the same in all lanes to a uniform
            // register, and products would wait for that.
            const int block_n = place.y * CONSUMERS + static_cast<int>(threadIdx.x) / WARPGROUP - 1;
            const float* sb_row = &sb[int64_t{min(block_n, N / MMA_N - 1)} * slices];
            for (int slice = 0; slice < slices; ++slice, turn.next()) {
                const float scale_n = sb_row[back ? slices - 1 - slice : slice];
                wait(&ring.full[turn.s], turn.parity);
#pragma unroll
                for (int half = 0; half < HALVES; ++half) {
                    const uint64_t a = A_first + turn.s * A_STAGE + half * A_HALF;
                    const uint64_t b = B_first + turn.s * B_STAGE;
                    float partial[MMA_N / 2];  // of this slice
                    wgmma_fence();
#pragma unroll
                    for (int step = 0; step < BLOCK_K; step += MMA_K)
                        wgmma_m64n128k32_e4m3(partial, a + step / K_CHUNK, b + step / K_CHUNK, step > 0);
                    wgmma_commit();
                    // Under these products: store the half before this one, if it is finished.
                    if (half == 0 && slice == 0) {
                        if (tile > first) store(1);
                        off_m = (place.x * CLUSTER + rank) * BLOCK_M + threadIdx.x % WARPGROUP / 32 * BOX_M;
                        off_n = place.y * BLOCK_N + consumer * MMA_N;
                    }
                    if (half == 1 && slice == slices - 1) store(0);
                    // TODO(4): Read the scales of this lane's two rows of the half. When the products are done, release
                    //   the stage if both halves have been multiplied. Add the slice's sums, each times the scale of
                    //   its row and scale_n, to those of the slices before. (~8 lines)
                    const float* sa =
                        &ring.sa[turn.s][half * MMA_M + threadIdx.x % WARPGROUP / 32 * BOX_M + lane_id / 4];
                    const float low = sa[0] * scale_n;
                    const float high = sa[8] * scale_n;
                    wgmma_wait<0>();
                    if (half == HALVES - 1) release(turn.s);
#pragma unroll
                    for (int i = 0; i < MMA_N / 2; ++i) C_rmem[half][i] += (i % 4 < 2 ? low : high) * partial[i];
                    // END TODO(4)
                }
            }
        }
        store(1);
        if (lane_id == 0) wait_read<0>();
    }
    cluster_sync();  // no block exits while the other may still arrive at its barriers
}

KATA_EXPORT void wgmma_fp8_block_scaled_tn(
    const __nv_fp8_e4m3* A, const float* sa, const __nv_fp8_e4m3* B, const float* sb, __nv_bfloat16* C, int M,
    int blocks_n, int blocks_k, cudaStream_t stream) {
    const int N = blocks_n * MMA_N;
    const int K = blocks_k * BLOCK_K;
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
    const CUtensorMap sa_map = matrix_map(sa, blocks_k, M, 1, BLOCK_M);
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(wgmma_fp8_block_scaled_tn_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    wgmma_fp8_block_scaled_tn_kernel<<<CLUSTER * clusters, THREADS, sizeof(Ring), stream>>>(
        A_map, B_map, C_map, sa_map, sb, M, N, K);
}
