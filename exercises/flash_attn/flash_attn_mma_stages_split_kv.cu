// flash_attn_mma_stages_split_kv: O = softmax(Q K^T / sqrt(D)) V, eight warps split queries and keys
//
// Shapes     Q, K, V, O: [B, H, N, D] f16, contiguous, 16-byte aligned bases, D one of 32, 64, 96, 128
// Technique  64 queries per block, which loops over tiles of 64 keys. For S a warp has 32 queries and 16 keys, for P V
//            the same queries and a quarter of D's columns; K and V in two stages each
// New        over flash_attn_mma_fragments_f16: Q, K and V are copied to shared memory once for all warps, and mma
//            accumulates in half. A row is spread over four warps, so maxima, sums and P go through shared memory
// Bound      shared memory and barriers: three barriers per tile, and P is written once and read four times
#include "kata.cuh"
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 16;
constexpr int WARPS_Q = 2;   // along the queries
constexpr int WARPS_KV = 4;  // along the keys, and for P V along D
constexpr int THREADS = WARPS_Q * WARPS_KV * 32;
constexpr int BLOCK_Q = 64;   // queries per block
constexpr int BLOCK_KV = 64;  // keys, and rows of V, per tile
constexpr int WARP_Q = BLOCK_Q / WARPS_Q;
constexpr int WARP_KV = BLOCK_KV / WARPS_KV;
constexpr int TILES_Q = WARP_Q / MMA_M;  // mma tiles per warp
constexpr int TILES_KV = WARP_KV / MMA_N;
constexpr int ROWS = 2 * TILES_Q;  // of S and O, of which a lane has a part
static_assert(TILES_KV == 2, "one ldmatrix brings all that a warp multiplies of K");
constexpr int STAGES = 2;  // slots for tiles of K, and as many for tiles of V
constexpr int CHUNK = 8;   // halves in one access of 16 bytes
// Halves that pad a row in shared memory. The eight rows that ldmatrix reads at a time then start 16 bytes apart modulo
// the 128 bytes of the 32 banks. They touch no bank twice.
constexpr int PAD = CHUNK;
template <int D>
constexpr int TILES_D = D / WARPS_KV / MMA_N;  // mma tiles per warp, along D

// The shared memory of a block.
template <int D>
struct Smem {
    half Q[BLOCK_Q][D + PAD];
    half K[STAGES][BLOCK_KV][D + PAD];
    half V[STAGES][BLOCK_KV][D + PAD];
    half P[BLOCK_Q][BLOCK_KV + PAD];
    float stats[WARPS_KV][BLOCK_Q];  // per query, the results of four warps: maxima, at the end sums
};

// shared -> registers: four 8x8 matrices. Lane l passes the address of row l % 8 of matrix l / 8. From each matrix it
// gets elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4 (PTX ISA, "Warp-level matrix load instruction: ldmatrix").
__device__ inline void ldmatrix_x4(uint32_t (&regs)[4], const half* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3])
                 : "r"(address)
                 : "memory");
}

// The same with each matrix transposed: a lane gets elements l / 4 of rows 2 * (l % 4) and 2 * (l % 4) + 1.
__device__ inline void ldmatrix_x4_trans(uint32_t (&regs)[4], const half* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3])
                 : "r"(address)
                 : "memory");
}

// A lane's sums of one mma [16, 8], in half: two neighbouring columns of row lane_id / 4 and of the row 8 below.
using Sums = uint32_t[2];

// c += a @ b for a [16, 16], b [16, 8], c [16, 8]. PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point
// type", defines the fragments.
__device__ inline void mma_m16n8k16(Sums& c, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(c[0]), "+r"(c[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^x, accurate to 2 ulp; 0 below 2^-126 (PTX ISA, "ex2").
__device__ inline float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ inline uint32_t pack(float2 pair) {
    const half2 halves = __float22half2_rn(pair);
    return reinterpret_cast<const uint32_t&>(halves);
}

// The two columns of one row: i is 0 for the upper row and 1 for the row 8 below.
__device__ inline float2 get_row(const Sums& sums, int i) {
    return __half22float2(reinterpret_cast<const half2&>(sums[i]));
}

__device__ inline void set_row(Sums& sums, int i, float2 pair) {
    sums[i] = pack(pair);
}

// Where this warp's part of a tile starts: queries, keys, columns of D.
__device__ inline int warp_q() {
    return threadIdx.x / 32 / WARPS_KV * WARP_Q;
}

__device__ inline int warp_kv() {
    return threadIdx.x / 32 % WARPS_KV * WARP_KV;
}

template <int D>
__device__ inline int warp_d() {
    return threadIdx.x / 32 % WARPS_KV * (D / WARPS_KV);
}

// The query of a lane's row i: row lane_id / 4 of a fragment, and every 8th below it.
__device__ inline int row_of(int i) {
    return warp_q() + i * 8 + threadIdx.x % 32 / 4;
}

// Reductions over a quad: lanes 4 i to 4 i + 3, which together hold one row of a fragment.
__device__ inline float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

__device__ inline float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// global -> shared: 16 bytes, without registers. They have arrived once a wait for their group returns. If inside is
// false, it reads nothing and writes zeros (PTX ISA, "cp.async": src-size).
__device__ inline void cp_async16(half* smem, const half* gmem, bool inside) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
    const size_t from = __cvta_generic_to_global(gmem);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

// Makes a group of this thread's copies since the last commit.
__device__ inline void cp_async_commit() {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

// Waits until at most the PENDING newest groups of this thread are in flight.
template <int PENDING>
__device__ inline void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" : : "n"(PENDING) : "memory");
}

// global -> shared: rows of D halves. The matrix has `left` of them from here on. The others become 0: a row of V past
// the end has weight 0, but unwritten memory may hold nan, and 0 * nan is nan.
template <int D, int ROWS>
__device__ inline void load_tile(half (&smem)[ROWS][D + PAD], const half* gmem, int left) {
    static_assert(ROWS * D / CHUNK % THREADS == 0, "every thread copies equally much");
#pragma unroll
    for (int i = 0; i < ROWS * D / CHUNK / THREADS; ++i) {
        const int chunk = i * THREADS + threadIdx.x;
        const int row = chunk / (D / CHUNK);
        const int col = chunk % (D / CHUNK) * CHUNK;
        cp_async16(&smem[row][col], gmem + (row < left ? row * D + col : 0), row < left);
    }
}

// S = Q K^T for a warp's 32 queries and its 16 keys of a tile. One ldmatrix loads the fragments of two neighbouring
// tiles of keys: lanes 0 to 15 address the left one, columns k and k + 8, and lanes 16 to 31 the right one.
template <int D>
__device__ inline void multiply_qk(
    Sums (&S_rmem)[TILES_Q][TILES_KV], const half (&Q_smem)[BLOCK_Q][D + PAD],
    const half (&K_smem)[BLOCK_KV][D + PAD]) {
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < D; k += MMA_K) {
        uint32_t K_rmem[4];
        const int row = warp_kv() + lane_id / 16 * MMA_N + lane_id % 8;
        ldmatrix_x4(K_rmem, &K_smem[row][k + lane_id / 8 % 2 * CHUNK]);
#pragma unroll
        for (int m = 0; m < TILES_Q; ++m) {
            uint32_t Q_rmem[4];
            ldmatrix_x4(Q_rmem, &Q_smem[warp_q() + m * MMA_M + lane_id % 16][k + lane_id / 16 * CHUNK]);
            mma_m16n8k16(S_rmem[m][0], Q_rmem, K_rmem[0], K_rmem[1]);
            mma_m16n8k16(S_rmem[m][1], Q_rmem, K_rmem[2], K_rmem[3]);
        }
    }
}

// Keys past the end of the matrix get -inf and therefore weight 0.
__device__ inline void mask_keys(Sums (&S_rmem)[TILES_Q][TILES_KV], int left) {
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < TILES_KV; ++n) {
        const int key = warp_kv() + n * MMA_N + lane_id % 4 * 2;
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            const float2 s = get_row(S_rmem[i / 2][n], i % 2);
            set_row(S_rmem[i / 2][n], i % 2, {key < left ? s.x : -INFINITY, key + 1 < left ? s.y : -INFINITY});
        }
    }
}

// registers -> shared: the maxima of S over this warp's keys, for the warps that have other keys of the same rows.
__device__ inline void share_max(float (&stats)[WARPS_KV][BLOCK_Q], const Sums (&S_rmem)[TILES_Q][TILES_KV]) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        // TODO(1): Compute the maximum of this row over the quad. One lane of the quad stores it at this warp's place
        //   in stats. (~7 lines)
        // END TODO(1)
    }
}

// P = 2^(scale * (S - maximum)), where maximum covers all keys of the row so far. The factor `shrink` rescales earlier
// weights from the old maximum to the new one. row_sum covers this lane's keys only.
__device__ inline void online_softmax(
    half (&P_smem)[BLOCK_Q][BLOCK_KV + PAD], const Sums (&S_rmem)[TILES_Q][TILES_KV],
    const float (&stats)[WARPS_KV][BLOCK_Q], float (&row_max)[ROWS], float (&row_sum)[ROWS], float (&shrink)[ROWS],
    float scale) {
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        // TODO(2): row_max of this row becomes the maximum of its old value and those of the four warps.
        //   shrink = 2^(scale * (old - new)), which is 0 for the first tile, because old is -inf. (~5 lines)
        // END TODO(2)
        // TODO(3): Compute P from S, in half, and store it at its place in P_smem. Rescale row_sum, then add this
        //   lane's weights before they are rounded. (~8 lines)
        // END TODO(3)
    }
}

// O = shrink * O + P V for a warp's 32 queries, all keys of the tile, and a quarter of D.
template <int D>
__device__ inline void multiply_pv(
    float (&O_rmem)[TILES_Q][TILES_D<D>][4], const half (&P_smem)[BLOCK_Q][BLOCK_KV + PAD],
    const half (&V_smem)[BLOCK_KV][D + PAD], const float (&shrink)[ROWS]) {
    const int lane_id = threadIdx.x % 32;
    Sums PV_rmem[TILES_Q][TILES_D<D>] = {};
    // TODO(4): PV = P V. V is [keys, D], so ldmatrix_x4_trans loads its fragments of B: one tile of columns and 32 keys
    //   at a time, because the warp may have an odd number of such tiles. P is loaded like Q. (~16 lines)
    // END TODO(4)
#pragma unroll
    for (int n = 0; n < TILES_D<D>; ++n) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            const float2 pv = get_row(PV_rmem[i / 2][n], i % 2);
            float* const o = &O_rmem[i / 2][n][i % 2 * 2];
            o[0] = shrink[i] * o[0] + pv.x;
            o[1] = shrink[i] * o[1] + pv.y;
        }
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS) flash_attn_mma_stages_split_kv_kernel(
    const half* __restrict__ Q,  // [B, H, N, D]
    const half* __restrict__ K,  // [B, H, N, D]
    const half* __restrict__ V,  // [B, H, N, D]
    half* __restrict__ O,        // [B, H, N, D]
    int N, float scale) {
    extern __shared__ __align__(16) unsigned char smem_bytes[];
    auto& smem = *reinterpret_cast<Smem<D>*>(smem_bytes);
    // Consecutive blocks go along the queries of a head. Blocks that run at the same time then share its K and V in L2.
    const int tiles_q = (N - 1) / BLOCK_Q + 1;
    const int64_t head = int64_t{blockIdx.x / tiles_q} * N * D;
    const int off_q = blockIdx.x % tiles_q * BLOCK_Q;
    const int tiles_kv = (N - 1) / BLOCK_KV + 1;
    const auto load_k = [&](int tile) {
        const int off_kv = tile * BLOCK_KV;
        if (tile < tiles_kv) load_tile<D>(smem.K[tile % STAGES], K + head + int64_t{off_kv} * D, N - off_kv);
        cp_async_commit();
    };
    const auto load_v = [&](int tile) {
        const int off_kv = tile * BLOCK_KV;
        if (tile < tiles_kv) load_tile<D>(smem.V[tile % STAGES], V + head + int64_t{off_kv} * D, N - off_kv);
        cp_async_commit();
    };
    load_tile<D>(smem.Q, Q + head + int64_t{off_q} * D, N - off_q);
    load_k(0);
    load_v(0);

    float O_rmem[TILES_Q][TILES_D<D>][4] = {};
    float row_max[ROWS] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    float row_sum[ROWS] = {};
    for (int tile = 0; tile < tiles_kv; ++tile) {
        // TODO(5): S, P, and P V of this tile. Before S, its K must have arrived for all threads. Prefetch the next K
        //   once no thread reads that slot any more. Before P V, do the same with V. In between, warps exchange maxima
        //   and P. (~16 lines)
        // END TODO(5)
    }

    // TODO(6): Store each warp's sum of a row, over the quad, at its place in stats. The maxima there are no longer
    //   needed. (~4 lines)
    // END TODO(6)
    __syncthreads();  // the sums of all warps are there
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        // TODO(7): Divide the row by its sum, of which each warp holds a part. Store this warp's columns as halves, a
        //   pair at a time. Store only rows that O has. (~12 lines)
        // END TODO(7)
    }
}

template <int D>
void launch(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    const int tiles_q = (N - 1) / BLOCK_Q + 1;
    const float scale = static_cast<float>(M_LOG2E / std::sqrt(double{D}));  // exp(x) is 2^(x log2(e))
    // More than 48 KB of shared memory must be requested.
    const auto kernel = flash_attn_mma_stages_split_kv_kernel<D>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Smem<D>));
    kernel<<<heads * tiles_q, THREADS, sizeof(Smem<D>), stream>>>(Q, K, V, O, N, scale);
}

KATA_EXPORT void flash_attn_mma_stages_split_kv(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    switch (D) {
        case 32:
            return launch<32>(Q, K, V, O, B * H, N, stream);
        case 64:
            return launch<64>(Q, K, V, O, B * H, N, stream);
        case 96:
            return launch<96>(Q, K, V, O, B * H, N, stream);
        case 128:
            return launch<128>(Q, K, V, O, B * H, N, stream);
    }
}
