// wgmma_stream_k_f16: C = A @ B^T, the slices of the tiles that fill no whole round are divided over all clusters
//
// Shapes     A: [M, K], B: [N, K], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  the product as in wgmma_there_and_back_tn_f16; clusters have equal shares of slices, each share begins and
//            ends inside a tile. The cluster with a tile's first slices waits for the sums of the others and adds
//            them, in the same order in every call. Rounds of whole tiles follow
// New        over wgmma_split_k_f16: a share is a number of slices, not a part of one tile, and clusters wait for the
//            sums of others in the same kernel
// Bound      Tensor Cores, and the power that the card may use; every call gives the same bits
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <algorithm>
#include <cstdint>
#include <cuda.h>
#include <cuda/atomic>
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
constexpr int WARPS = CONSUMERS * WARPGROUP / 32;     // of the consumers
constexpr int CLUSTER = 2;                            // blocks, one below the other in C: they need the same tile of B
constexpr int PART_N = BLOCK_N / CLUSTER;             // rows of B that each of them loads, for all of them
constexpr int BOX_N = 64;                             // columns of C in a box: 128 bytes
constexpr int BOX_M = 16;                             // rows of C in a box: those of a warp
constexpr int PARTS = BLOCK_N / BOX_N;                // boxes of a warp's tile
constexpr int BOXES = 2;                              // per warp, in flight to C
static_assert(BOX_N == BLOCK_K, "the maps have the same boxes");
constexpr int STRIP = 8;                       // rows of the clusters' tiles
constexpr int CHUNK = 8;                       // halves in 16 bytes
constexpr int QUADS = BLOCK_N / 8;             // per thread: two sums of a row, and two of the row 8 below
constexpr int STRIDE = CONSUMERS * WARPGROUP;  // from quad to quad of a thread
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
    alignas(GROUP_BYTES) half C[WARPS][BOXES][BOX_M * BOX_N];
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

using ReadyRef = cuda::atomic_ref<int, cuda::thread_scope_device>;

// A warp's 16 rows of a tile that has been multiplied, and their place in C: BOX_N columns per part, in pairs of two
// adjacent columns.
struct Finished {
    half2 pairs[PARTS][BOX_N / 4];
    int off_m;
    int off_n;
};

// registers -> shared -> global: a part of a warp's tile, by way of one of the warp's boxes.
__device__ inline void store_part(
    half (&boxes)[BOXES][BOX_M * BOX_N], const Finished& tile, int part, const CUtensorMap* C_map) {
    const int lane_id = threadIdx.x % 32;
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

// The place of a tile in C, in tiles. Consecutive tiles go down a strip of STRIP rows of tiles, then right, in every
// other strip left: tiles that run at the same time need few rows of A and of B, and these stay in L2.
__device__ inline int2 place_of(int tile, int tiles_m, int tiles_n) {
    const int strip = tile / (STRIP * tiles_n);
    const int height = min(STRIP, tiles_m - strip * STRIP);
    const int place = tile - strip * STRIP * tiles_n;
    const int m = strip * STRIP + place % height;
    int n = place / height;
    if (strip % 2 == 1) n = tiles_n - 1 - n;
    return make_int2(m, n);
}

// Consecutive slices of one tile.
struct Piece {
    int tile;
    int begin;
    int end;
};

// How work is divided: the slices of the first tiles over all clusters, then rounds of whole tiles, one per cluster.
struct Schedule {
    int clusters;
    int slices;  // of a tile
    int shared;  // tiles whose slices are divided
    int share;   // slices of a cluster,
    int longer;  // and how many clusters, the first ones, have one more
    int rounds;
    // The first slice of a cluster's share. Slice s of tile t has number t * slices + s.
    __device__ inline int first_of(int cluster) const { return cluster * share + min(cluster, longer); }
    __device__ inline bool next(int cluster, int done, Piece* piece) const;
};

// The piece that comes after the first `done` slices of a cluster's work. False: its work has ended.
__device__ inline bool Schedule::next(int cluster, int done, Piece* piece) const {
    const int left = first_of(cluster + 1) - first_of(cluster) - done;
    bool more = false;
    // TODO(1): What is left of the cluster's share, up to the end of the tile in which it begins. After the share,
    //   one whole tile of each round: those of a round are adjacent, in the order of the clusters. (~10 lines)
    // END TODO(1)
    return more;
}

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1) wgmma_stream_k_f16_kernel(
    const __grid_constant__ CUtensorMap A_map,  // [M, K]
    const __grid_constant__ CUtensorMap B_map,  // [N, K]
    const __grid_constant__ CUtensorMap C_map,  // [M, N]
    float4* sums,                               // [clusters, CLUSTER, QUADS, STRIDE], of a share's first piece
    int* ready,                                 // [clusters, CLUSTER, WARPS]: 1 if the warp has stored its sums
    Schedule schedule, int M, int N) {
    alignas(GROUP_BYTES) extern __shared__ unsigned char smem[];
    Ring& ring = *reinterpret_cast<Ring*>(smem);
    // The cluster's tile is CLUSTER tiles of BLOCK_M rows, one below the other. Each block has one of them.
    const int rank = cluster_rank();
    const int cluster = schedule.clusters - 1 - blockIdx.x / CLUSTER;  // which waits for those that started before it
    const int tiles_m = (M - 1) / (CLUSTER * BLOCK_M) + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    Piece piece = {0, 0, 1};
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
            for (int done = 0; schedule.next(cluster, done, &piece); done += piece.end - piece.begin, back = !back) {
                const int2 place = place_of(piece.tile, tiles_m, tiles_n);
                const int off_m = (place.x * CLUSTER + rank) * BLOCK_M;
                const int off_n = place.y * BLOCK_N;
                for (int i = piece.begin; i < piece.end; ++i, turn.next()) {
                    uint64_t* full = &ring.full[turn.s];
                    const int slice = back ? piece.begin + piece.end - 1 - i : i;
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
        half(&boxes)[BOXES][BOX_M * BOX_N] = ring.C[warp_id];
        const int thread = threadIdx.x - WARPGROUP;  // among the consumers'
        Finished finished;
        bool pending = false;  // whether finished has a tile that has not been stored
        Turn turn{0, 0};
        if (consumer == 1) let_other_go(consumer);
        for (int done = 0; schedule.next(cluster, done, &piece); done += piece.end - piece.begin) {
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
                    wgmma_m64n256k16(C_rmem, a + step / CHUNK, b + step / CHUNK, slice - piece.begin + step > 0);
                    if (step == 0) {
                        wgmma_commit();
                        wgmma_wait<1>();
                        if (slice > piece.begin) release(before);
                    }
                }
                wgmma_commit();
                let_other_go(consumer);
                before = turn.s;
                turn.next();
            };
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                if (piece.begin + part < piece.end) multiply(piece.begin + part);
                if (pending) store_part(boxes, finished, part, &C_map);
            }
            for (int slice = piece.begin + PARTS; slice < piece.end; ++slice) multiply(slice);
            wgmma_wait<0>();
            release(before);
            pending = piece.begin == 0;  // this cluster stores the tile, and the others of the tile their sums
            if (!pending) {
                const int block = cluster * CLUSTER + rank;
                float4* own = sums + int64_t{block} * QUADS * STRIDE + thread;
                // TODO(2): registers -> global: each quad of this thread's sums. The warp's number in ready becomes 1,
                //   and a warp on any SM that sees the 1 finds the sums of all 32 lanes. (~7 lines)
                // END TODO(2)
                continue;
            }
            // TODO(3): If the piece ends before its tile does, add the sums of all clusters that have the rest, from
            //   the first to the last, each as soon as the same warp of its block has stored them. (~15 lines)
            // END TODO(3)
            const int2 place = place_of(piece.tile, tiles_m, tiles_n);
#pragma unroll
            for (int i = 0; i < BLOCK_N / 4; ++i)
                finished.pairs[i / (BOX_N / 4)][i % (BOX_N / 4)] = __floats2half2_rn(C_rmem[2 * i], C_rmem[2 * i + 1]);
            finished.off_m = (place.x * CLUSTER + rank) * BLOCK_M + warp_id * BOX_M;
            finished.off_n = place.y * BLOCK_N;
        }
        if (pending) {
#pragma unroll
            for (int part = 0; part < PARTS; ++part) store_part(boxes, finished, part, &C_map);
        }
        if (threadIdx.x % 32 == 0) wait_read<0>();
    }
    cluster_sync();  // no block exits while the other may still arrive at its barriers
}

KATA_EXPORT void wgmma_stream_k_f16(const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    int device = 0;
    int sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    const int tiles = ((M - 1) / (CLUSTER * BLOCK_M) + 1) * ((N - 1) / BLOCK_N + 1);
    const int slices = (K - 1) / BLOCK_K + 1;
    const int clusters = static_cast<int>(std::min(int64_t{sms / CLUSTER}, int64_t{tiles} * slices));
    int shared = tiles;
    // TODO(4): Share no tile if whole rounds have all of them. Otherwise share those that are more than whole rounds,
    //   and, if there is one, those of a round: then no share is less than a tile. (~2 lines)
    // END TODO(4)
    const CUtensorMap A_map = swizzled_map(A, M, K, BLOCK_M);
    const CUtensorMap B_map = swizzled_map(B, N, K, PART_N);
    const CUtensorMap C_map = swizzled_map(C, M, N, BOX_M);
    const Schedule schedule = {
        clusters, slices, shared, shared * slices / clusters, shared * slices % clusters, (tiles - shared) / clusters};
    const int64_t blocks = CLUSTER * clusters;
    // The pool keeps what is freed. Otherwise each call that follows a synchronisation would get it from the driver.
    cudaMemPool_t pool;
    uint64_t kept_bytes = UINT64_MAX;
    cudaDeviceGetDefaultMemPool(&pool, device);
    cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes);
    float4* sums = nullptr;
    cudaMallocAsync(&sums, blocks * (QUADS * STRIDE * sizeof(float4) + WARPS * sizeof(int)), stream);
    int* ready = reinterpret_cast<int*>(sums + blocks * QUADS * STRIDE);
    cudaMemsetAsync(ready, 0, blocks * WARPS * sizeof(int), stream);
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(wgmma_stream_k_f16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    wgmma_stream_k_f16_kernel<<<CLUSTER * clusters, THREADS, sizeof(Ring), stream>>>(
        A_map, B_map, C_map, sums, ready, schedule, M, N);
    cudaFreeAsync(sums, stream);
}
