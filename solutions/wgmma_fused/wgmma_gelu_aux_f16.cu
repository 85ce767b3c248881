// wgmma_gelu_aux_f16: Z = A @ B^T + bias and Y = gelu(Z), a tile's gelu is computed under the next tile's products
//
// Shapes     A: [M, K], B: [N, K], bias: [N], Z, Y: [M, N] f16, row-major, contiguous, 16-byte aligned bases, N and K
//            multiples of 8; gelu(z) = 0.5 z (1 + tanh(0.79788 (z + 0.044715 z^3)))
// Technique  the product as in wgmma_there_and_back_tn_f16; the halves of Z wait in registers, and go to Z, through
//            gelu and to Y in 16 steps, each under one of the next tile's slices
// New        over wgmma_bias_relu_f16: two outputs, and a function that would keep the Tensor Cores waiting
// Bound      Tensor Cores, and the power that the card may use
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
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
constexpr float SQRT_2_OVER_PI = 0.7978845608f;
constexpr float LOG2_E = 1.4426950409f;
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
constexpr int CLUSTER = 2;                            // blocks, one below the other in Z: they need the same tile of B
constexpr int PART_N = BLOCK_N / CLUSTER;             // rows of B that each of them loads, for all of them
constexpr int BOX_N = 64;                             // columns of Z and Y in a box: 128 bytes
constexpr int BOX_M = 16;                             // rows of Z and Y in a box: those of a warp
constexpr int PARTS = BLOCK_N / BOX_N;                // boxes of a warp's tile
constexpr int SHARES = 4;                             // of a part, each in a step of its own
constexpr int STEPS = SHARES * PARTS;                 // by which a tile becomes Z and Y
constexpr int BOXES = 2;                              // per warp, one for Z and one for Y
static_assert(BOX_N == BLOCK_K, "the maps have the same boxes");
constexpr int STRIP = 8;  // rows of the clusters' tiles
constexpr int CHUNK = 8;  // halves in 16 bytes
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
    alignas(GROUP_BYTES) half boxes[CONSUMERS * WARPGROUP / 32][BOXES][BOX_M * BOX_N];
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

// A warp's 16 rows of a tile that has been multiplied, and their place in Z and Y: BOX_N columns per part, in pairs of
// two adjacent columns.
struct Finished {
    half2 pairs[PARTS][BOX_N / 4];
    int off_m;
    int off_n;
};

// 2^x, accurate to 2 ulp; 0 below 2^-126 (PTX ISA, "ex2").
__device__ inline float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / x, accurate to 1 ulp; 0 from 2^126 on (PTX ISA, "rcp").
__device__ inline float reciprocal_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// x / (1 + exp(-2u)), u = SQRT_2_OVER_PI (x + 0.044715 x^3). The hardware computes exponentials of base 2, and two
// constants hold all factors of the exponent.
__device__ __forceinline__ float gelu(float x) {
    constexpr float FACTOR = -2.0f * LOG2_E * SQRT_2_OVER_PI;
    return x * reciprocal_approx(1.0f + exp2_approx(x * fmaf(0.044715f * FACTOR * x, x, FACTOR)));
}

// registers -> shared -> global: a part of a warp's tile, by way of one of the warp's boxes.
__device__ inline void store_part(half (&box)[BOX_M * BOX_N], const Finished& tile, int part, const CUtensorMap* map) {
    const int lane_id = threadIdx.x % 32;
    const int row = lane_id % 16;  // that this lane names to stmatrix
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
        store_box(map, tile.off_n + part * BOX_N, tile.off_m, box);
        commit_stores();
    }
}

// One of the steps by which a tile that has been multiplied becomes Z and Y. Each part of it takes SHARES.
__device__ __forceinline__ void finish(
    half (&boxes)[BOXES][BOX_M * BOX_N], Finished& tile, int step, const CUtensorMap* Z_map, const CUtensorMap* Y_map) {
    constexpr int PAIRS = BOX_N / 4 / SHARES;  // of a lane, in a step
    const int part = step / SHARES;
    const int share = step % SHARES;
    // TODO(1): In the first step of a part store it to Z, by way of the first box. Replace a share of its numbers by
    //   their gelu in each step. In the last step store it to Y, by way of the other box. (~8 lines)
    if (share == 0) store_part(boxes[0], tile, part, Z_map);
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
        half2& pair = tile.pairs[part][share * PAIRS + i];
        const float2 z = __half22float2(pair);
        pair = __floats2half2_rn(gelu(z.x), gelu(z.y));
    }
    if (share == SHARES - 1) store_part(boxes[1], tile, part, Y_map);
    // END TODO(1)
}

// The place of a tile in Z and Y, in tiles. Consecutive tiles go down a strip of STRIP rows of tiles, then right, in
// every other strip left: tiles that run at the same time need few rows of A and of B, and these stay in L2.
__device__ inline int2 place_of(int tile, int tiles_m, int tiles_n) {
    const int strip = tile / (STRIP * tiles_n);
    const int height = min(STRIP, tiles_m - strip * STRIP);
    const int place = tile - strip * STRIP * tiles_n;
    const int m = strip * STRIP + place % height;
    int n = place / height;
    if (strip % 2 == 1) n = tiles_n - 1 - n;
    return make_int2(m, n);
}

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1) wgmma_gelu_aux_f16_kernel(
    const __grid_constant__ CUtensorMap A_map,  // [M, K]
    const __grid_constant__ CUtensorMap B_map,  // [N, K]
    const __grid_constant__ CUtensorMap Z_map,  // [M, N]
    const __grid_constant__ CUtensorMap Y_map,  // [M, N]
    const half* bias, int M, int N, int K) {
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
                    const int slice = back ? slices - 1 - i : i;
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
        half(&boxes)[BOXES][BOX_M * BOX_N] = ring.boxes[warp_id];
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
            // TODO(2): Multiply the first STEPS slices, and do a step of the tile before, if there is one, under each
            //   of them. Do all steps, also if there are fewer slices. (~5 lines)
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                if (step < slices) multiply(step);
                if (tile > first) finish(boxes, finished, step, &Z_map, &Y_map);
            }
            // END TODO(2)
            const int2 place = place_of(tile, tiles_m, tiles_n);
            finished.off_m = (place.x * CLUSTER + rank) * BLOCK_M + warp_id * BOX_M;
            finished.off_n = place.y * BLOCK_N;
            half2 bias_rmem[BLOCK_N / CHUNK] = {};  // of this lane's two columns of every eight
#pragma unroll
            for (int j = 0; j < BLOCK_N / CHUNK; ++j) {
                const int col = finished.off_n + j * CHUNK + threadIdx.x % 4 * 2;
                if (col < N) bias_rmem[j] = *reinterpret_cast<const half2*>(&bias[col]);
            }
            for (int slice = STEPS; slice < slices; ++slice) multiply(slice);
            wgmma_wait<0>();
            release(before);
            const auto pair = [&](int i) -> half2& { return finished.pairs[i / (BOX_N / 4)][i % (BOX_N / 4)]; };
#pragma unroll
            for (int i = 0; i < BLOCK_N / 4; ++i) {
                const float2 addend = __half22float2(bias_rmem[i / 2]);
                pair(i) = __floats2half2_rn(C_rmem[2 * i] + addend.x, C_rmem[2 * i + 1] + addend.y);
            }
        }
#pragma unroll
        for (int step = 0; step < STEPS; ++step) finish(boxes, finished, step, &Z_map, &Y_map);
        if (threadIdx.x % 32 == 0) wait_read<0>();
    }
    cluster_sync();  // no block exits while the other may still arrive at its barriers
}

KATA_EXPORT void wgmma_gelu_aux_f16(
    const half* A, const half* B, const half* bias, half* Z, half* Y, int M, int N, int K, cudaStream_t stream) {
    int device = 0;
    int sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    const int tiles = ((M - 1) / (CLUSTER * BLOCK_M) + 1) * ((N - 1) / BLOCK_N + 1);
    const int most = sms / CLUSTER;  // clusters at a time
    const int rounds = (tiles - 1) / most + 1;
    const int clusters = (tiles - 1) / rounds + 1;  // as few as so many rounds need
    const CUtensorMap A_map = swizzled_map(A, M, K, BLOCK_M);
    const CUtensorMap B_map = swizzled_map(B, N, K, PART_N);
    const CUtensorMap Z_map = swizzled_map(Z, M, N, BOX_M);
    const CUtensorMap Y_map = swizzled_map(Y, M, N, BOX_M);
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(wgmma_gelu_aux_f16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    wgmma_gelu_aux_f16_kernel<<<CLUSTER * clusters, THREADS, sizeof(Ring), stream>>>(
        A_map, B_map, Z_map, Y_map, bias, M, N, K);
}
