// wgmma_tf32_tn: C = A @ B^T for floats, rounded to tf32 by the copy engine
//
// Shapes     A: [M, K], B: [N, K], C: [M, N] f32, row-major, contiguous, 16-byte aligned bases, N and K multiples of 4
// Technique  128 x 256 per block at a time, 256 x 256 per cluster of two blocks, in strips of 8, there and back; a
//            producer and two consumer warpgroups per block, which alternate; a ring of four slices of 32
// New        over wgmma_best_tn_bf16: an element is four bytes, so the same bytes are half the k. The map's type rounds
//            what it copies. A lane stores its floats from registers: four lanes write a whole sector
// Bound      Tensor Cores, and the power that the card may use
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <cstdint>
#include <cuda.h>

// From kata_tma.cuh:
using kata::tensor_map_encoder, kata::mbarrier_init, kata::expect, kata::arrive_at, kata::wait, kata::load_box,
    kata::multicast_box, kata::cluster_rank, kata::cluster_sync;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::descriptor, kata::fewer_registers,
    kata::more_registers;

constexpr unsigned FULL_MASK = 0xffffffff;
constexpr int WARPGROUP = 128;  // threads: four warps, the first of them a multiple of four
constexpr int MMA_K = 8;
constexpr int MMA_M = 64;
constexpr int CONSUMERS = 2;  // warpgroups; each has MMA_M rows of the tile
constexpr int BLOCK_M = CONSUMERS * MMA_M;
constexpr int BLOCK_N = 256;
constexpr int BLOCK_K = 32;        // a row of a tile is 128 bytes, the span of the swizzle
constexpr int GROUP_BYTES = 1024;  // eight rows: the pattern of the swizzle
constexpr int STAGE_BYTES = (BLOCK_M + BLOCK_N) * BLOCK_K * sizeof(float);
constexpr int STAGES = 4;
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;  // the producer's warpgroup, then the consumers'
constexpr int CLUSTER = 2;                            // blocks, one below the other in C: they need the same tile of B
constexpr int PART_N = BLOCK_N / CLUSTER;             // rows of B that each of them loads, for all of them
constexpr int STRIP = 8;                              // rows of the clusters' tiles
constexpr int CHUNK = 4;                              // floats in 16 bytes
// Distances in units of 16 bytes, as a descriptor's address has them, from stage to stage.
constexpr uint64_t A_STAGE = BLOCK_M * BLOCK_K * sizeof(float) / 16;
constexpr uint64_t B_STAGE = BLOCK_N * BLOCK_K * sizeof(float) / 16;
// A block of 384 threads starts with 168 registers per thread: 65536 / 384, rounded down to a multiple of eight.
constexpr int PRODUCER_REGISTERS = 40;
constexpr int CONSUMER_REGISTERS = 232;
static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= (1 + CONSUMERS) * 168, "the SM has no more");

// c += a @ b for a [64, 8] and b [8, 256] of tf32 in shared memory, c = a @ b where add is false. The sums are where
// those of wgmma_m64n256k16 are. A tf32 is a float of which the last 13 bits are not read.
__device__ inline void wgmma_m64n256k8_tf32(float (&c)[128], uint64_t a, uint64_t b, bool add) {
    // TODO(1): Multiply by the instruction for tf32. Which immediates does it not have? (~30 lines)
    // END TODO(1)
}

// swizzled_map of kata_tma.cuh for tiles of tf32. The Tensor Cores would cut 13 bits off every element. So the copy
// engine rounds each to the nearest tf32.
inline CUtensorMap tf32_map(const float* matrix, int rows, int cols, int box_rows) {
    CUtensorMap map = {};
    // TODO(2): Encode a map of the matrix that copies boxes of box_rows rows of 128 bytes, with the 128-byte swizzle,
    //   and rounds. (~8 lines)
    // END TODO(2)
    return map;
}

struct Ring {
    alignas(GROUP_BYTES) float A[STAGES][BLOCK_M * BLOCK_K];
    alignas(GROUP_BYTES) float B[STAGES][BLOCK_N * BLOCK_K];
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

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1) wgmma_tf32_tn_kernel(
    const __grid_constant__ CUtensorMap A_map,  // [M, K]
    const __grid_constant__ CUtensorMap B_map,  // [N, K]
    float* __restrict__ C, int M, int N, int K) {
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
        Turn turn{0, 0};
        if (consumer == 1) let_other_go(consumer);
        for (int tile = first; tile < tiles; tile += clusters) {
            float C_rmem[BLOCK_N / 2];
            int before = 0;  // the stage of the slice before
            for (int slice = 0; slice < slices; ++slice) {
                wait(&ring.full[turn.s], turn.parity);
                const uint64_t a = A_first + turn.s * A_STAGE;
                const uint64_t b = B_first + turn.s * B_STAGE;
                // TODO(3): Multiply the slice in this consumer's turn. Its first product is a group of its own, under
                //   which the stage before is released. What is a step now, in k and in bytes? (~13 lines)
                // END TODO(3)
                before = turn.s;
                turn.next();
            }
            wgmma_wait<0>();
            release(before);
            const int2 place = place_of(tile, tiles_m, tiles_n);
            const int off_m = (place.x * CLUSTER + rank) * BLOCK_M + row + threadIdx.x % WARPGROUP / 32 * 16;
            const int off_n = place.y * BLOCK_N;
            // TODO(4): Store the sums that lie inside of C. A warp has 16 rows of the tile, a lane two adjacent columns
            //   of every eight. (~10 lines)
            // END TODO(4)
        }
    }
    cluster_sync();  // no block exits while the other may still arrive at its barriers
}

KATA_EXPORT void wgmma_tf32_tn(const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    int device = 0;
    int sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    const int tiles = ((M - 1) / (CLUSTER * BLOCK_M) + 1) * ((N - 1) / BLOCK_N + 1);
    const int most = sms / CLUSTER;  // clusters at a time
    int clusters = tiles < most ? tiles : most;
    const int rounds = (tiles - 1) / most + 1;
    clusters = (tiles - 1) / rounds + 1;
    const CUtensorMap A_map = tf32_map(A, M, K, BLOCK_M);
    const CUtensorMap B_map = tf32_map(B, N, K, PART_N);
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(wgmma_tf32_tn_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    wgmma_tf32_tn_kernel<<<CLUSTER * clusters, THREADS, sizeof(Ring), stream>>>(A_map, B_map, C, M, N, K);
}
