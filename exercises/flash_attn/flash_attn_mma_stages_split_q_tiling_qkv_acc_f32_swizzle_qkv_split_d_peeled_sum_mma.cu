// flash_attn_mma_stages_split_q_tiling_qkv_acc_f32_swizzle_qkv_split_d_peeled_sum_mma: O = softmax(Q K^T / sqrt(D)) V
//
// Shapes     Q, K, V, O: [B, H, N, D] f16, contiguous, 16-byte aligned bases, D one of 32, 64, 96, 128, 256, 512, 1024;
//            D = 512 and 1024 need up to 146 KB of shared memory, which compute capability 8.6 and 8.9 do not have
// Technique  64 queries (32 at D = 1024) per block stay in shared memory; 8 warps split 128 keys for S, and the columns
//            of O for P V. K in slices of columns and V in slices of rows pass through one ring, the last tile first
// New        over flash_attn_mma_stages_split_q_tiling_qkv_acc_f32_swizzle_qkv_split_d: the last tile, the only one
//            that may lack keys, comes before the loop, and mma sums the weights. The slices of a tile are unrolled.
//            The swizzle repeats, so most addresses are a constant apart
// Bound      L2 and Tensor Cores: K and V are read once per 64 queries
#include "kata.cuh"
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 16;
constexpr int WARPS = 8;
constexpr int THREADS = WARPS * 32;
constexpr int BLOCK_KV = 128;  // keys, and rows of V, per tile
constexpr int CHUNK = 8;       // halves in one access of 16 bytes
constexpr int MMAS_Q = 2;      // mma tiles of queries per warp, for S
constexpr int WARP_Q = MMAS_Q * MMA_M;

// A lane's sums of one mma [16, 8], in float: two neighbouring columns of row lane_id / 4 and of the row 8 below.
using Sums = float[4];

// How the warps share the work, and the shared memory of a block.
template <int D>
struct Plan {
    static constexpr int BLOCK_Q = D > 512 ? 32 : 64;  // queries per block: O takes at most 128 registers per thread
    static constexpr int WARPS_Q = BLOCK_Q / WARP_Q;   // S: warps along the queries, and along the keys
    static constexpr int WARPS_KV = WARPS / WARPS_Q;
    static constexpr int WARP_KV = BLOCK_KV / WARPS_KV;
    static constexpr int TILES_KV = WARP_KV / MMA_N;
    static constexpr int WARPS_D = D < 256 ? 2 : 8;  // O: warps along its columns, the others along its rows
    static constexpr int WARP_D = D / WARPS_D;
    static constexpr int WARP_M = BLOCK_Q / (WARPS / WARPS_D);
    static constexpr int BLOCK_D = D > 512 ? 128 : D % 64 == 0 ? 64 : 32;  // columns of K in a slice
    static constexpr int BLOCK_V = D > 256 ? 16 : D > 128 ? 32 : 64;       // rows of V in a slice
    static constexpr int STAGES = D < 512 ? 3 : 2048 / D;                  // slots for slices
    union Slot {
        half K[BLOCK_KV][BLOCK_D];
        half V[BLOCK_V][D];
    };
    struct Smem {
        half Q[BLOCK_Q][D];
        half P[BLOCK_Q][BLOCK_KV];
        Slot ring[STAGES];
        float part[WARPS_KV][BLOCK_Q];  // of a row's maximum, at the end of its sum, one per warp along the keys
        float shrink[BLOCK_Q];
    };
    using S = Sums[MMAS_Q][TILES_KV];
    using O = Sums[WARP_M / MMA_M][WARP_D / MMA_N];
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

// c += a @ b for a [16, 16], b [16, 8], c [16, 8]. PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point
// type", defines the fragments.
__device__ inline void mma_m16n8k16(Sums& c, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
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
    return {sums[2 * i], sums[2 * i + 1]};
}

__device__ inline void set_row(Sums& sums, int i, float2 pair) {
    sums[2 * i] = pair.x;
    sums[2 * i + 1] = pair.y;
}

// Reductions over a quad: lanes 4 i to 4 i + 3, which together hold one row of a fragment.
__device__ inline float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
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

// The position of the chunk of column col in a row of COLS halves. Among the eight rows that ldmatrix reads at a time,
// all (rows of a multiple of 128 bytes) or every second one (others) start in the same banks. Chunks trade places
// within a row, so that the eight touch no bank twice. Rows eight apart, and columns SPAN apart, use the same
// permutation. So only a few addresses are computed; the others are a constant away.
template <int COLS>
__device__ inline int swizzle(int row, int col) {
    constexpr int PERIOD = COLS / CHUNK % 8 == 0 ? 8 : 4;  // chunks of a row that trade places
    constexpr int SPAN = PERIOD * CHUNK;
    return col / SPAN * SPAN + (col % SPAN ^ row / (8 / PERIOD) % PERIOD * CHUNK);
}

// global -> shared: COLS columns of some rows of D halves. The matrix has `left` of them from here on. The others
// become 0: a row of V past the end has weight 0, but unwritten memory may hold nan, and 0 * nan is nan.
template <int D, int COLS, int ROWS>
__device__ inline void load_tile(half (&smem)[ROWS][COLS], const half* gmem, int left) {
    constexpr int SPAN = COLS % 128 == 0 ? 128 : COLS % 64 == 0 ? 64 : 32;  // columns and
    constexpr int STEP = THREADS / (SPAN / CHUNK);                          // rows that the block copies at a time
    static_assert(ROWS % STEP == 0 && STEP % 8 == 0, "every thread copies equally much, and swizzles alike each time");
    // TODO(1): Copy the rows from row on, STEP apart, and of each the columns SPAN apart. Compute one address in shared
    //   memory and one in global memory. The others are a constant away. (~10 lines)
    // END TODO(1)
}

// S += Q K^T over a slice, from column off_d of Q on, for a warp's 32 queries and its share of the keys.
template <int D>
__device__ inline void multiply_qk(
    typename Plan<D>::S& S_rmem, const half (&Q_smem)[Plan<D>::BLOCK_Q][D], int off_d,
    const half (&K_smem)[BLOCK_KV][Plan<D>::BLOCK_D]) {
    const int warp_q = threadIdx.x / 32 / Plan<D>::WARPS_KV;
    const int warp_kv = threadIdx.x / 32 % Plan<D>::WARPS_KV;
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < Plan<D>::BLOCK_D; k += MMA_K) {
        uint32_t Q_rmem[MMAS_Q][4];
#pragma unroll
        for (int m = 0; m < MMAS_Q; ++m) {
            const int row = warp_q * WARP_Q + lane_id % 16;
            ldmatrix_x4(Q_rmem[m], &Q_smem[row + m * MMA_M][swizzle<D>(row, off_d + k + lane_id / 16 * CHUNK)]);
        }
#pragma unroll
        for (int n = 0; n < Plan<D>::TILES_KV; n += 2) {
            uint32_t K_rmem[4];
            const int row = warp_kv * Plan<D>::WARP_KV + lane_id / 16 * MMA_N + lane_id % 8;
            ldmatrix_x4(K_rmem, &K_smem[row + n * MMA_N][swizzle<Plan<D>::BLOCK_D>(row, k + lane_id / 8 % 2 * CHUNK)]);
#pragma unroll
            for (int m = 0; m < MMAS_Q; ++m) {
                mma_m16n8k16(S_rmem[m][n], Q_rmem[m], K_rmem[0], K_rmem[1]);
                mma_m16n8k16(S_rmem[m][n + 1], Q_rmem[m], K_rmem[2], K_rmem[3]);
            }
        }
    }
}

// Keys past the end of the matrix get -inf and therefore weight 0.
template <int D>
__device__ inline void mask_keys(typename Plan<D>::S& S_rmem, int left) {
    const int off_kv = threadIdx.x / 32 % Plan<D>::WARPS_KV * Plan<D>::WARP_KV;
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < Plan<D>::TILES_KV; ++n) {
        const int key = off_kv + n * MMA_N + lane_id % 4 * 2;
#pragma unroll
        for (int i = 0; i < 2 * MMAS_Q; ++i) {
            Sums& sums = S_rmem[i / 2][n];
            const float2 s = get_row(sums, i % 2);
            set_row(sums, i % 2, {key < left ? s.x : -INFINITY, key + 1 < left ? s.y : -INFINITY});
        }
    }
}

// P = 2^(scale * S - maximum) in shared memory, where maximum covers all keys of the row so far. The factor `shrink`
// rescales earlier weights from the old maximum to the new one. i / 2 is the tile of queries; i % 2 is 0 for its row
// lane_id / 4 and 1 for the row 8 below. row_sum is P times a matrix of ones. Every column has the sum over this warp's
// keys, of weights rounded as for P V. An error that all weights of a row share therefore cancels, and one fma may
// scale S.
template <int D>
__device__ inline void online_softmax(
    typename Plan<D>::Smem& smem, const typename Plan<D>::S& S_rmem, float (&row_max)[2 * MMAS_Q],
    Sums (&row_sum)[MMAS_Q], float scale) {
    const int warp_kv = threadIdx.x / 32 % Plan<D>::WARPS_KV;
    const int lane_id = threadIdx.x % 32;
    const int off_row = threadIdx.x / 32 / Plan<D>::WARPS_KV * WARP_Q + lane_id / 4;
#pragma unroll
    for (int i = 0; i < 2 * MMAS_Q; ++i) {
        float max = -INFINITY;
#pragma unroll
        for (int n = 0; n < Plan<D>::TILES_KV; ++n) {
            const float2 s = get_row(S_rmem[i / 2][n], i % 2);
            max = fmaxf(max, fmaxf(s.x, s.y));
        }
        max = quad_max(max);
        if (lane_id % 4 == 0) smem.part[warp_kv][off_row + i * 8] = max;
    }
    __syncthreads();  // now the parts of all warps are there
#pragma unroll
    for (int i = 0; i < 2 * MMAS_Q; ++i) {
        const int row = off_row + i * 8;
        float max = row_max[i];
#pragma unroll
        for (int warp = 0; warp < Plan<D>::WARPS_KV; ++warp) max = fmaxf(max, scale * smem.part[warp][row]);
        const float shrink = exp2_approx(row_max[i] - max);
        if (warp_kv == 0 && lane_id % 4 == 0) smem.shrink[row] = shrink;
        row_max[i] = max;
        // TODO(2): Rescale row_sum as O is rescaled. (~2 lines)
        // END TODO(2)
    }
    // TODO(3): Store P of the warp's rows, in half, at its swizzled place. Add P times ones to row_sum. (~19 lines)
    // END TODO(3)
}

// O += P V over a slice, from key off_kv of the tile on, for a warp's rows and columns of O.
template <int D>
__device__ inline void multiply_pv(
    typename Plan<D>::O& O_rmem, const half (&P_smem)[Plan<D>::BLOCK_Q][BLOCK_KV], int off_kv,
    const half (&V_smem)[Plan<D>::BLOCK_V][D]) {
    constexpr int TILES_M = Plan<D>::WARP_M / MMA_M;
    const int warp_id = threadIdx.x / 32;
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < Plan<D>::BLOCK_V; k += MMA_K) {
        uint32_t P_rmem[TILES_M][4];
#pragma unroll
        for (int m = 0; m < TILES_M; ++m) {
            const int row = warp_id / Plan<D>::WARPS_D * Plan<D>::WARP_M + lane_id % 16;
            ldmatrix_x4(P_rmem[m], &P_smem[row + m * MMA_M][swizzle<BLOCK_KV>(row, off_kv + k + lane_id / 16 * CHUNK)]);
        }
#pragma unroll
        for (int n = 0; n < Plan<D>::WARP_D / MMA_N; n += 2) {
            uint32_t V_rmem[4];
            const int row = lane_id % 16;
            const int col = warp_id % Plan<D>::WARPS_D * Plan<D>::WARP_D + n * MMA_N + lane_id / 16 * CHUNK;
            ldmatrix_x4_trans(V_rmem, &V_smem[k + row][swizzle<D>(row, col)]);
#pragma unroll
            for (int m = 0; m < TILES_M; ++m) {
                mma_m16n8k16(O_rmem[m][n], P_rmem[m], V_rmem[0], V_rmem[1]);
                mma_m16n8k16(O_rmem[m][n + 1], P_rmem[m], V_rmem[2], V_rmem[3]);
            }
        }
    }
}

// Multiplies the rows of O that a lane has, from the warp's first on, by factor(row of the block).
template <int D, typename Factor>
__device__ inline void scale_rows(typename Plan<D>::O& O_rmem, const Factor& factor) {
    const int off_row = threadIdx.x / 32 / Plan<D>::WARPS_D * Plan<D>::WARP_M + threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < Plan<D>::WARP_M / 8; ++i) {
        const float f = factor(off_row + i * 8);
#pragma unroll
        for (int n = 0; n < Plan<D>::WARP_D / MMA_N; ++n) {
            const float2 o = get_row(O_rmem[i / 2][n], i % 2);
            set_row(O_rmem[i / 2][n], i % 2, {f * o.x, f * o.y});
        }
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS)
    flash_attn_mma_stages_split_q_tiling_qkv_acc_f32_swizzle_qkv_split_d_peeled_sum_mma_kernel(
        const half* __restrict__ Q,  // [B, H, N, D]
        const half* __restrict__ K,  // [B, H, N, D]
        const half* __restrict__ V,  // [B, H, N, D]
        half* __restrict__ O,        // [B, H, N, D]
        int N, float scale) {
    using Plan = ::Plan<D>;
    extern __shared__ __align__(16) unsigned char smem_bytes[];
    auto& smem = *reinterpret_cast<typename Plan::Smem*>(smem_bytes);
    // Consecutive blocks go along the queries of a head. Blocks that run at the same time then share its K and V in L2.
    const int tiles_q = (N - 1) / Plan::BLOCK_Q + 1;
    const int64_t head = int64_t{blockIdx.x / tiles_q} * N * D;
    const int off_q = blockIdx.x % tiles_q * Plan::BLOCK_Q;
    constexpr int SLICES_K = D / Plan::BLOCK_D;  // of a tile, then those of V
    constexpr int SLICES_V = BLOCK_KV / Plan::BLOCK_V;
    constexpr int SLICES = SLICES_K + SLICES_V;
    // Only the last tile of keys may lack some. It is processed first. The others, down to the first, are whole.
    const int last = (N - 1) / BLOCK_KV;
    K += head + int64_t{last} * BLOCK_KV * D;
    V += head + int64_t{last} * BLOCK_KV * D;
    const auto slot = [&](int tile, int slice) ->
        typename Plan::Slot& { return smem.ring[((last - tile) * SLICES + slice) % Plan::STAGES]; };
    // A slice of the tile that is `off` elements from where K and V point, and of which the matrix has `left` keys.
    const auto load = [&](int tile, int off, int slice, int left) {
        const int row = (slice - SLICES_K) * Plan::BLOCK_V;  // of V
        if (slice < SLICES_K) {
            load_tile<D>(slot(tile, slice).K, K + off + slice * Plan::BLOCK_D, left);
        } else {
            load_tile<D>(slot(tile, slice).V, V + off + (row < left ? row * D : 0), left - row);
        }
    };
    load_tile<D>(smem.Q, Q + head + int64_t{off_q} * D, N - off_q);
#pragma unroll
    for (int slice = 0; slice < Plan::STAGES - 1; ++slice) {
        load(last, 0, slice, N - last * BLOCK_KV);
        cp_async_commit();
    }

    typename Plan::O O_rmem = {};
    float row_max[2 * MMAS_Q];
    Sums row_sum[MMAS_Q] = {};
    for (float& max : row_max) max = -INFINITY;
    // TODO(4): Process all tiles, the last one first, with a lambda: its `left` is a constant in the loop. Wait for
    //   each slice, and prefetch the one STAGES - 1 ahead, in the preceding tile if need be. Rescale O once, after the
    //   barrier that makes P and `shrink` visible. (~34 lines)
    // END TODO(4)

    const int warp_id = threadIdx.x / 32;
    const int lane_id = threadIdx.x % 32;
    // TODO(5): Store the warp's part of each row's sum in smem.part. A barrier makes the parts visible to all.
    //   (~6 lines)
    // END TODO(5)
    scale_rows<D>(O_rmem, [&](int row) {
        float sum = 0.0f;
        for (int warp = 0; warp < Plan::WARPS_KV; ++warp) sum += smem.part[warp][row];
        return 1.0f / sum;
    });
#pragma unroll
    for (int i = 0; i < Plan::WARP_M / 8; ++i) {
        const int row = off_q + warp_id / Plan::WARPS_D * Plan::WARP_M + i * 8 + lane_id / 4;
        half* const O_row = O + head + int64_t{row} * D + warp_id % Plan::WARPS_D * Plan::WARP_D + lane_id % 4 * 2;
        if (row >= N) continue;
#pragma unroll
        for (int n = 0; n < Plan::WARP_D / MMA_N; ++n) {
            *reinterpret_cast<uint32_t*>(O_row + n * MMA_N) = pack(get_row(O_rmem[i / 2][n], i % 2));
        }
    }
}

template <int D>
void launch(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    using Plan = ::Plan<D>;
    const int tiles_q = (N - 1) / Plan::BLOCK_Q + 1;
    const float scale = static_cast<float>(M_LOG2E / std::sqrt(double{D}));  // exp(x) is 2^(x log2(e))
    // More than 48 KB of shared memory must be requested.
    const auto kernel = flash_attn_mma_stages_split_q_tiling_qkv_acc_f32_swizzle_qkv_split_d_peeled_sum_mma_kernel<D>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(typename Plan::Smem));
    kernel<<<heads * tiles_q, THREADS, sizeof(typename Plan::Smem), stream>>>(Q, K, V, O, N, scale);
}

KATA_EXPORT void flash_attn_mma_stages_split_q_tiling_qkv_acc_f32_swizzle_qkv_split_d_peeled_sum_mma(
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
        case 256:
            return launch<256>(Q, K, V, O, B * H, N, stream);
        case 512:
            return launch<512>(Q, K, V, O, B * H, N, stream);
        case 1024:
            return launch<1024>(Q, K, V, O, B * H, N, stream);
    }
}
