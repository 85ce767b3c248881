// wgmma_grouped_f16: rows of A are in groups, each with a matrix of its own: C[t] = A[t] @ B[group of t]^T
//
// Shapes     A: [T, K], B: [E, N, K], C: [T, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of
//            8; counts: [E] i32, whole numbers from 0 on with the sum T: the first counts[0] rows are group 0's, then
//            those of group 1
// Technique  the product as in wgmma_there_and_back_tn_f16; tiles are counted through all groups, and producer and
//            consumers find a tile's group on their own. The last rows of a group are stored without the copy engine
// New        over wgmma_there_and_back_tn_f16: one launch for products whose sizes only the GPU knows
// Bound      Tensor Cores, or the bandwidth for B; every call gives the same bits
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <algorithm>
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::swizzled_map, kata::mbarrier_init, kata::expect, kata::arrive_at, kata::wait, kata::load_box,
    kata::multicast_box, kata::store_box, kata::commit_stores, kata::wait_read, kata::fence_proxy, kata::cluster_rank,
    kata::cluster_sync;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::wgmma_m64n256k16, kata::descriptor,
    kata::stmatrix_x4, kata::fewer_registers, kata::more_registers;

constexpr unsigned FULL_MASK = 0xffffffff;
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
constexpr int CLUSTER = 2;                            // blocks, one below the other in C: they need the same tile of B
constexpr int PART_N = BLOCK_N / CLUSTER;             // rows of B that each of them loads, for all of them
constexpr int BOX_N = 64;                             // columns of C in a box: 128 bytes
constexpr int BOX_M = 16;                             // rows of C in a box: those of a warp
constexpr int PARTS = BLOCK_N / BOX_N;                // boxes of a warp's tile
constexpr int BOXES = 2;                              // per warp, in flight to C
static_assert(BOX_N == BLOCK_K, "the maps have the same boxes");
constexpr int HEIGHT = CLUSTER * BLOCK_M;  // rows of a cluster's tile
constexpr int CHUNK = 8;                   // halves in 16 bytes
// Distances in units of 16 bytes, as a descriptor's address has them, from stage to stage.
constexpr uint64_t A_STAGE = BLOCK_M * BLOCK_K * sizeof(half) / 16;
constexpr uint64_t B_STAGE = BLOCK_N * BLOCK_K * sizeof(half) / 16;
// A block of 384 threads starts with 168 registers per thread: 65536 / 384, rounded down to a multiple of eight.
constexpr int PRODUCER_REGISTERS = 40;
constexpr int CONSUMER_REGISTERS = 232;
static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= (1 + CONSUMERS) * 168, "the SM has no more");

struct Ring {
    alignas(GROUP_BYTES) half A[STAGES][BLOCK_M * BLOCK_K];
    alignas(GROUP_BYTES) half B[STAGES][BLOCK_N * BLOCK_K];
    alignas(GROUP_BYTES) half C[CONSUMERS * WARPGROUP / 32][BOXES][BOX_M * BOX_N];
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
    half2 pairs[PARTS][BOX_N / 4];
    int off_m;
    int off_n;
    int end;  // the row after the group's last one
};

// registers -> shared -> global: a part of a warp's tile, by way of one of the warp's boxes. Where the group has fewer
// rows than the box, a box would overwrite rows of the next group.
__device__ inline void store_part(
    half (&boxes)[BOXES][BOX_M * BOX_N], const Finished& tile, int part, const CUtensorMap* C_map, half* C, int N) {
    const int lane_id = threadIdx.x % 32;
    if (tile.off_m + BOX_M > tile.end) {
        // TODO(1): registers -> global: the pairs of rows that the group has, and of columns that C has. (~7 lines)
#pragma unroll
        for (int i = 0; i < BOX_N / 4; ++i) {
            const int row = tile.off_m + lane_id / 4 + i % 2 * 8;
            const int col = tile.off_n + part * BOX_N + i / 2 * CHUNK + lane_id % 4 * 2;
            if (row < tile.end && col < N) *reinterpret_cast<half2*>(&C[int64_t{row} * N + col]) = tile.pairs[part][i];
        }
        // END TODO(1)
        return;
    }
    const int row = lane_id % 16;  // that this lane names to stmatrix
    half* box = boxes[part % BOXES];
    if (lane_id == 0) wait_read<BOXES - 1>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < BOX_N; i += 16) {
        const half2* pairs = &tile.pairs[part][i / 4];
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

// A group, and what is before it.
struct Group {
    int number;
    int row;   // the first one of its rows,
    int tile;  // and of its tiles, which are counted through all groups
    int rows;
};

// Goes on to the group that has the tile. False: groups have fewer tiles.
__device__ inline bool find(Group& group, int tile, const int* counts, int groups, int tiles_n) {
    // TODO(2): Go from group to group, and return true when one has the tile. A group has tiles of HEIGHT rows from its
    //   first row on, the last one with fewer, and tiles_n of them side by side. An empty group has no tile. (~9 lines)
    while (group.number < groups) {
        group.rows = counts[group.number];
        const int tiles = (group.rows + HEIGHT - 1) / HEIGHT * tiles_n;
        if (tile < group.tile + tiles) return true;
        group.row += group.rows;
        group.tile += tiles;
        ++group.number;
    }
    // END TODO(2)
    return false;
}

// The place of a tile in its group, in tiles. Consecutive tiles are below each other, so that they share rows of B.
__device__ inline int2 place_of(const Group& group, int tile) {
    const int tiles_m = (group.rows - 1) / HEIGHT + 1;
    return make_int2((tile - group.tile) % tiles_m, (tile - group.tile) / tiles_m);
}

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1) wgmma_grouped_f16_kernel(
    const __grid_constant__ CUtensorMap A_map,  // [T, K]
    const __grid_constant__ CUtensorMap B_map,  // [E * N, K]
    const __grid_constant__ CUtensorMap C_map,  // [T, N]
    half* C, const int* counts, int E, int N, int K) {
    alignas(GROUP_BYTES) extern __shared__ unsigned char smem[];
    Ring& ring = *reinterpret_cast<Ring*>(smem);
    // The cluster's tile is CLUSTER tiles of BLOCK_M rows, one below the other. Each block has one of them.
    const int rank = cluster_rank();
    const int first = blockIdx.x / CLUSTER;
    const int clusters = gridDim.x / CLUSTER;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    Group group = {};
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
            for (int tile = first; find(group, tile, counts, E, tiles_n); tile += clusters, back = !back) {
                const int2 place = place_of(group, tile);
                int off_a = 0;
                int off_b = 0;
                // TODO(3): Find the first row of A that this block loads, and the first row of B. (~2 lines)
                off_a = group.row + place.x * HEIGHT + rank * BLOCK_M;
                off_b = group.number * N + place.y * BLOCK_N + rank * PART_N;
                // END TODO(3)
                for (int i = 0; i < slices; ++i, turn.next()) {
                    uint64_t* full = &ring.full[turn.s];
                    const int slice = back ? slices - 1 - i : i;
                    wait(&ring.empty[turn.s], turn.parity);
                    expect(full, STAGE_BYTES);
                    load_box(ring.A[turn.s], &A_map, slice * BLOCK_K, off_a, full);
                    multicast_box(
                        &ring.B[turn.s][rank * PART_N * BLOCK_K], &B_map, slice * BLOCK_K, off_b, full,
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
        half(&boxes)[BOXES][BOX_M * BOX_N] = ring.C[warp_id];
        Finished finished;
        finished.off_m = finished.off_n = finished.end = 0;  // no rows, should this cluster have no tile
        Turn turn{0, 0};
        if (consumer == 1) let_other_go(consumer);
        for (int tile = first; find(group, tile, counts, E, tiles_n); tile += clusters) {
            float C_rmem[BLOCK_N / 2];
            int before = 0;  // the stage of the slice before
            const auto multiply = [&](int slice) {
                wait(&ring.full[turn.s], turn.parity);
                const uint64_t a = A_first + turn.s * A_STAGE;
                const uint64_t b = B_first + turn.s * B_STAGE;
                wait_for_other(consumer);
                wgmma_fence();
#pragma unroll
                for (int step = 0; step < BLOCK_K; step += MMA_K) {
                    wgmma_m64n256k16(C_rmem, a + step / CHUNK, b + step / CHUNK, slice + step > 0);
                    if (step == 0) {
                        wgmma_commit();
                        wgmma_wait<1>();
                        if (slice > 0) release(before);
                    }
                }
                wgmma_commit();
                let_other_go(consumer);
                before = turn.s;
                turn.next();
            };
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                if (part < slices) multiply(part);
                if (tile > first) store_part(boxes, finished, part, &C_map, C, N);
            }
            for (int slice = PARTS; slice < slices; ++slice) multiply(slice);
            wgmma_wait<0>();
            release(before);
            const int2 place = place_of(group, tile);
#pragma unroll
            for (int i = 0; i < BLOCK_N / 4; ++i)
                finished.pairs[i / (BOX_N / 4)][i % (BOX_N / 4)] = __floats2half2_rn(C_rmem[2 * i], C_rmem[2 * i + 1]);
            finished.off_m = group.row + place.x * HEIGHT + rank * BLOCK_M + warp_id * BOX_M;
            finished.off_n = place.y * BLOCK_N;
            finished.end = group.row + group.rows;
        }
#pragma unroll
        for (int part = 0; part < PARTS; ++part) store_part(boxes, finished, part, &C_map, C, N);
        if (threadIdx.x % 32 == 0) wait_read<0>();
    }
    cluster_sync();  // no block exits while the other may still arrive at its barriers
}

KATA_EXPORT void wgmma_grouped_f16(
    const half* A, const half* B, const int* counts, half* C, int T, int E, int N, int K, cudaStream_t stream) {
    int device = 0;
    int sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    // The host does not know the groups. There may be as many tiles as if each had one row more than whole tiles.
    const int most = (T / HEIGHT + E) * ((N - 1) / BLOCK_N + 1);
    const int clusters = std::min(sms / CLUSTER, most);
    const CUtensorMap A_map = swizzled_map(A, T, K, BLOCK_M);
    const CUtensorMap B_map = swizzled_map(B, E * N, K, PART_N);
    const CUtensorMap C_map = swizzled_map(C, T, N, BOX_M);
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(wgmma_grouped_f16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    wgmma_grouped_f16_kernel<<<CLUSTER * clusters, THREADS, sizeof(Ring), stream>>>(
        A_map, B_map, C_map, C, counts, E, N, K);
}
