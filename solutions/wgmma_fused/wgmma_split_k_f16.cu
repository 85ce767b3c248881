// wgmma_split_k_f16: C = A @ B^T for few tiles and many k, several clusters share the k of a tile
//
// Shapes     A: [M, K], B: [N, K], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  a cluster of two blocks multiplies some of the slices of a tile of 256 x 256, as in
//            wgmma_there_and_back_tn_f16; its sums go to memory in f32, as they lie in registers. A second kernel adds
//            those of all clusters of a tile, in the same order in every call, and rounds once
// New        over wgmma_there_and_back_tn_f16: a tile's slices are divided over clusters, so that most SMs have work
// Bound      Tensor Cores, or the bandwidth for A and B; every call gives the same bits
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <algorithm>
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::swizzled_map, kata::mbarrier_init, kata::expect, kata::arrive_at, kata::wait, kata::load_box,
    kata::multicast_box, kata::cluster_rank, kata::cluster_sync;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::wgmma_m64n256k16, kata::descriptor,
    kata::fewer_registers, kata::more_registers;

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
constexpr int CHUNK = 8;                              // halves in 16 bytes
constexpr int QUADS = BLOCK_N / 8;                    // per thread: two sums of a row, and two of the row 8 below
constexpr int QUADS_TILE = BLOCK_M * BLOCK_N / 4;     // of a block
constexpr int SUM_THREADS = 256;
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

// A range of slices.
struct Range {
    int begin;
    int end;
};

// The slices that number split of all splits multiplies.
__device__ inline Range slices_of(int split, int splits, int slices) {
    Range range = {0, slices};
    // TODO(1): Divide the slices, so that no split has over one slice more than another, and none has no slice. There
    //   are at least as many slices as splits. (~2 lines)
    range.begin = static_cast<int>(int64_t{slices} * split / splits);
    range.end = static_cast<int>(int64_t{slices} * (split + 1) / splits);
    // END TODO(1)
    return range;
}

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1) wgmma_split_k_f16_kernel(
    const __grid_constant__ CUtensorMap A_map,  // [M, K]
    const __grid_constant__ CUtensorMap B_map,  // [N, K]
    float4* sums,                               // [splits, tiles, CLUSTER, QUADS, CONSUMERS * WARPGROUP]
    int K, int tiles_n, int tiles, int splits) {
    alignas(GROUP_BYTES) extern __shared__ unsigned char smem[];
    Ring& ring = *reinterpret_cast<Ring*>(smem);
    // The cluster's tile is CLUSTER tiles of BLOCK_M rows, one below the other. Each block has one of them.
    const int rank = cluster_rank();
    const int tile = blockIdx.x / CLUSTER % tiles;
    const int off_m = (tile / tiles_n * CLUSTER + rank) * BLOCK_M;
    const int off_n = tile % tiles_n * BLOCK_N;
    const Range range = slices_of(blockIdx.x / CLUSTER / tiles, splits, (K - 1) / BLOCK_K + 1);
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
            for (int slice = range.begin; slice < range.end; ++slice, turn.next()) {
                uint64_t* full = &ring.full[turn.s];
                wait(&ring.empty[turn.s], turn.parity);
                expect(full, STAGE_BYTES);
                load_box(ring.A[turn.s], &A_map, slice * BLOCK_K, off_m, full);
                multicast_box(
                    &ring.B[turn.s][rank * PART_N * BLOCK_K], &B_map, slice * BLOCK_K, off_n + rank * PART_N, full,
                    (1 << CLUSTER) - 1);
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
        Turn turn{0, 0};
        if (consumer == 1) let_other_go(consumer);
        float C_rmem[BLOCK_N / 2];
        int before = 0;  // the stage of the slice before
        for (int slice = range.begin; slice < range.end; ++slice) {
            wait(&ring.full[turn.s], turn.parity);
            const uint64_t a = A_first + turn.s * A_STAGE;
            const uint64_t b = B_first + turn.s * B_STAGE;
            wait_for_other(consumer);
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < BLOCK_K; step += MMA_K) {
                wgmma_m64n256k16(C_rmem, a + step / CHUNK, b + step / CHUNK, slice - range.begin + step > 0);
                if (step == 0) {
                    wgmma_commit();
                    wgmma_wait<1>();
                    if (slice > range.begin) release(before);
                }
            }
            wgmma_commit();
            let_other_go(consumer);
            before = turn.s;
            turn.next();
        }
        wgmma_wait<0>();
        release(before);
        const int thread = threadIdx.x - WARPGROUP;  // among the consumers'
        // TODO(2): registers -> global: each quad of this thread's sums, next to that of the next thread. (~4 lines)
        float4* own = sums + (int64_t{blockIdx.x} * QUADS) * (CONSUMERS * WARPGROUP) + thread;
#pragma unroll
        for (int q = 0; q < QUADS; ++q) {
            own[q * (CONSUMERS * WARPGROUP)] =
                make_float4(C_rmem[4 * q], C_rmem[4 * q + 1], C_rmem[4 * q + 2], C_rmem[4 * q + 3]);
        }
        // END TODO(2)
    }
    cluster_sync();  // no block exits while the other may still arrive at its barriers
}

// One thread per quad of C's tiles.
__global__ void __launch_bounds__(SUM_THREADS) sum_splits_f16_kernel(
    const float4* __restrict__ sums, half* __restrict__ C, int M, int N, int tiles_n, int tiles, int splits) {
    const int quads = tiles * CLUSTER * QUADS_TILE;  // of a split
    const int idx = blockIdx.x * SUM_THREADS + threadIdx.x;
    float4 sum = {};
    // TODO(3): Add this quad of all splits, from the first one to the last. (~4 lines)
    for (int split = 0; split < splits; ++split) {
        const float4 part = sums[int64_t{split} * quads + idx];
        sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
    }
    // END TODO(3)
    const int thread = idx % (CONSUMERS * WARPGROUP);  // of the block that computed it,
    const int q = idx / (CONSUMERS * WARPGROUP) % QUADS;
    const int block = idx / QUADS_TILE;  // which is block % CLUSTER of its tile
    const int tile = block / CLUSTER;
    int row = 0;
    int col = 0;
    // TODO(4): Find where in C the quad's first sum is. Store the pairs that are in C. (~5 lines)
    row = (tile / tiles_n * CLUSTER + block % CLUSTER) * BLOCK_M + thread / 32 * 16 + thread % 32 / 4;
    col = tile % tiles_n * BLOCK_N + q * 8 + thread % 4 * 2;
    half* at = C + int64_t{row} * N + col;
    if (row < M && col < N) *reinterpret_cast<half2*>(at) = __floats2half2_rn(sum.x, sum.y);
    if (row + 8 < M && col < N) *reinterpret_cast<half2*>(at + int64_t{8} * N) = __floats2half2_rn(sum.z, sum.w);
    // END TODO(4)
}

KATA_EXPORT void wgmma_split_k_f16(const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    int device = 0;
    int sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int tiles = ((M - 1) / (CLUSTER * BLOCK_M) + 1) * tiles_n;
    const int slices = (K - 1) / BLOCK_K + 1;
    int splits = 1;
    // TODO(5): As many splits of each tile as can run at a time with those of all other tiles, on clusters of CLUSTER
    //   SMs. At least one, and none without a slice. (~1 line)
    splits = std::max(1, std::min(sms / CLUSTER / tiles, slices));
    // END TODO(5)
    const CUtensorMap A_map = swizzled_map(A, M, K, BLOCK_M);
    const CUtensorMap B_map = swizzled_map(B, N, K, PART_N);
    // The pool keeps what is freed. Otherwise each call that follows a synchronisation would get it from the driver.
    cudaMemPool_t pool;
    uint64_t kept_bytes = UINT64_MAX;
    cudaDeviceGetDefaultMemPool(&pool, device);
    cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes);
    float4* sums = nullptr;
    cudaMallocAsync(&sums, int64_t{splits} * tiles * CLUSTER * QUADS_TILE * sizeof(float4), stream);
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(wgmma_split_k_f16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    wgmma_split_k_f16_kernel<<<CLUSTER * tiles * splits, THREADS, sizeof(Ring), stream>>>(
        A_map, B_map, sums, K, tiles_n, tiles, splits);
    sum_splits_f16_kernel<<<tiles * CLUSTER * QUADS_TILE / SUM_THREADS, SUM_THREADS, 0, stream>>>(
        sums, C, M, N, tiles_n, tiles, splits);
    cudaFreeAsync(sums, stream);
}
