// wgmma_tma_store_tn_f16: C = A @ B^T, the copy engine stores C
//
// Shapes     A: [M, K], B: [N, K], C: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K multiples of 8
// Technique  128 x 256 per block at a time, in strips of 16 tiles; a producer and two consumer warpgroups; a ring of
//            four slices of 64, two boxes of C per consumer
// New        over wgmma_one_arrival_tn_f16: the sums go through shared memory, swizzled, and leave by TMA in full
//            lines. Strips have 16 rows
// Bound      Tensor Cores
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::swizzled_map, kata::smem_address, kata::mbarrier_init, kata::expect, kata::arrive, kata::wait,
    kata::load_box, kata::store_box, kata::commit_stores, kata::wait_read, kata::fence_proxy;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::wgmma_m64n256k16, kata::descriptor,
    kata::fewer_registers, kata::more_registers;

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
constexpr int BOX_N = 64;                             // columns of C in a box: 128 bytes
constexpr int BOXES = 2;                              // of 64 x BOX_N sums per consumer, in flight to C
static_assert(BOX_N == BLOCK_K, "the maps have the same boxes");
constexpr int STRIP = 16;  // rows of tiles
constexpr int CHUNK = 8;   // halves in 16 bytes
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
    alignas(GROUP_BYTES) half C[CONSUMERS][BOXES][MMA_M * BOX_N];
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

// A barrier for one consumer warpgroup. Barrier 0 is __syncthreads.
__device__ inline void consumer_sync(int consumer) {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + consumer), "n"(WARPGROUP) : "memory");
}

// registers -> shared: four 8 x 8 matrices of halves. Lane l passes the address of row l % 8 of matrix l / 8 (PTX ISA,
// "stmatrix"). Each register has two adjacent elements of a row, as in an accumulator of wgmma.
__device__ inline void stmatrix_x4(half* row, const half2 (&pairs)[4]) {
    const auto regs = reinterpret_cast<const uint32_t (&)[4]>(pairs);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_address(row)),
                 "r"(regs[0]), "r"(regs[1]), "r"(regs[2]), "r"(regs[3])
                 : "memory");
}

// registers -> shared -> global: this consumer's 64 rows of the tile, BOX_N columns at a time, by way of its boxes.
__device__ inline void store_tile(
    half (&boxes)[BOXES][MMA_M * BOX_N], const float (&sums)[BLOCK_N / 2], const CUtensorMap* C_map, int off_m,
    int off_n, int consumer) {
    const int lane_id = threadIdx.x % 32;
    const int row = threadIdx.x % WARPGROUP / 32 * 16 + lane_id % 16;  // that this lane names to stmatrix
#pragma unroll
    for (int j = 0; j < BLOCK_N / BOX_N; ++j) {
        half* box = boxes[j % BOXES];
        // TODO(1): Before the warpgroup overwrites the box, the copy engine has read what is in it. Newer stores may
        //   still be read. (~2 lines)
        // END TODO(1)
#pragma unroll
        for (int i = 0; i < BOX_N; i += 16) {
            half2 pairs[4];
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                const int at = (j * BOX_N + i) / 2 + 2 * p;
                pairs[p] = __floats2half2_rn(sums[at], sums[at + 1]);
            }
            // TODO(2): Store the 16 x 16 sums from column i of the box on: chunk c of row r is in place c ^ (r % 8).
            //   The matrices are rows 0 to 7 and 8 to 15 of the first eight columns, then of the others. (~2 lines)
            // END TODO(2)
        }
        // TODO(3): Have the box stored by one thread, as a bulk group of its own, once it has all sums and the copy
        //   engine can see them. (~6 lines)
        // END TODO(3)
    }
}

// The place of a tile in C, in tiles. Consecutive tiles go down a strip of STRIP rows of tiles, then right: what runs
// at the same time needs few rows of A and of B, which stay in L2.
__device__ inline int2 place_of(int tile, int tiles_m, int tiles_n) {
    int m = 0;
    int n = 0;
    const int first_m = tile / (STRIP * tiles_n) * STRIP;
    const int height = min(STRIP, tiles_m - first_m);
    const int place = tile - first_m * tiles_n;
    m = first_m + place % height;
    n = place / height;
    return make_int2(m, n);
}

__global__ void __launch_bounds__(THREADS, 1) wgmma_tma_store_tn_f16_kernel(
    const __grid_constant__ CUtensorMap A_map,  // [M, K]
    const __grid_constant__ CUtensorMap B_map,  // [N, K]
    const __grid_constant__ CUtensorMap C_map,  // [M, N]
    int M, int N, int K) {
    alignas(GROUP_BYTES) extern __shared__ unsigned char smem[];
    Ring& ring = *reinterpret_cast<Ring*>(smem);
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int tiles = tiles_m * tiles_n;
    const int slices = (K - 1) / BLOCK_K + 1;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&ring.full[s], 1);
            mbarrier_init(&ring.empty[s], CONSUMERS);
        }
    }
    __syncthreads();
    if (threadIdx.x < WARPGROUP) {
        fewer_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) {
            Turn turn{0, 1};  // a wait for parity 1 of a fresh barrier returns at once
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
                const int2 place = place_of(tile, tiles_m, tiles_n);
                const int off_m = place.x * BLOCK_M;
                const int off_n = place.y * BLOCK_N;
                for (int slice = 0; slice < slices; ++slice, turn.next()) {
                    uint64_t* full = &ring.full[turn.s];
                    wait(&ring.empty[turn.s], turn.parity);
                    expect(full, STAGE_BYTES);
                    load_box(ring.A[turn.s], &A_map, slice * BLOCK_K, off_m, full);
                    load_box(ring.B[turn.s], &B_map, slice * BLOCK_K, off_n, full);
                }
            }
        }
    } else {
        more_registers<CONSUMER_REGISTERS>();
        const int consumer = threadIdx.x / WARPGROUP - 1;
        const int row = consumer * MMA_M;  // of the tile of A
        const uint64_t A_first = descriptor(&ring.A[0][row * BLOCK_K]);
        const uint64_t B_first = descriptor(ring.B[0]);
        const auto release = [&](int s) {
            if (threadIdx.x % WARPGROUP == 0) arrive(&ring.empty[s]);
        };
        Turn turn{0, 0};
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const int2 place = place_of(tile, tiles_m, tiles_n);
            float C_rmem[BLOCK_N / 2];
            int before = 0;  // the stage of the slice before
            for (int slice = 0; slice < slices; ++slice, turn.next()) {
                wait(&ring.full[turn.s], turn.parity);
                const uint64_t a = A_first + turn.s * A_STAGE;
                const uint64_t b = B_first + turn.s * B_STAGE;
                wgmma_fence();
#pragma unroll
                for (int step = 0; step < BLOCK_K; step += MMA_K)
                    wgmma_m64n256k16(C_rmem, a + step / CHUNK, b + step / CHUNK, slice + step > 0);
                wgmma_commit();
                wgmma_wait<1>();
                if (slice > 0) release(before);
                before = turn.s;
            }
            wgmma_wait<0>();
            release(before);
            const int off_m = place.x * BLOCK_M + row;
            const int off_n = place.y * BLOCK_N;
            store_tile(ring.C[consumer], C_rmem, &C_map, off_m, off_n, consumer);
        }
        if (threadIdx.x % WARPGROUP == 0) wait_read<0>();
    }
}

KATA_EXPORT void wgmma_tma_store_tn_f16(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    int device = 0;
    int sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    const int tiles = ((M - 1) / BLOCK_M + 1) * ((N - 1) / BLOCK_N + 1);
    const int blocks = tiles < sms ? tiles : sms;
    const CUtensorMap A_map = swizzled_map(A, M, K, BLOCK_M);
    const CUtensorMap B_map = swizzled_map(B, N, K, BLOCK_N);
    const CUtensorMap C_map = swizzled_map(C, M, N, MMA_M);
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(wgmma_tma_store_tn_f16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    wgmma_tma_store_tn_f16_kernel<<<blocks, THREADS, sizeof(Ring), stream>>>(A_map, B_map, C_map, M, N, K);
}
