// flash_attn_mma_fragments_f16: O = softmax(Q K^T / sqrt(D)) V on Tensor Cores, every operand a fragment in registers
//
// Shapes     Q, K, V, O: [B, H, N, D] f16, contiguous, 16-byte aligned bases, D one of 32, 64, 96, 128
// Technique  a warp has 16 queries and loops over tiles of 64 keys. It loads fragments from global memory, accumulates
//            S and P V in float, and does not use shared memory
// New        over flash_attn_online_f16: mma.sync. Four lanes hold a row of S. Rounded to half, their registers are
//            already the fragment that P V needs, so P needs no exchange
// Bound      load instructions: a lane loads 4 bytes of K or 2 bytes of V at a time, and every warp loads all of K and
//            V
#include "kata.cuh"
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 16;
constexpr int WARPS = 4;  // independent of each other
constexpr int THREADS = WARPS * 32;
constexpr int BLOCK_Q = WARPS * MMA_M;  // queries per block
constexpr int BLOCK_KV = 64;            // keys, and rows of V, per tile
constexpr int TILES_KV = BLOCK_KV / MMA_N;

// A lane's sums of one mma [16, 8], in float: two neighbouring columns of row lane_id / 4 and of the row 8 below.
using Sums = float[4];

// c += a @ b for a [16, 16], b [16, 8], c [16, 8]. PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating
// point type", defines the fragments. With g = lane_id / 4 and q = lane_id % 4, this lane has
//     of a   rows g (a[0], a[2]) and g + 8 (a[1], a[3]), columns 2 q, 2 q + 1 (a[0], a[1]) and 8 further (a[2], a[3])
//     of b   column g, rows 2 q, 2 q + 1 (b0) and 8 further (b1)
//     of c   rows g (c[0], c[1]) and g + 8 (c[2], c[3]), columns 2 q, 2 q + 1
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

__device__ inline float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// global -> register: elements col and col + 1 of a row of D halves, or 0 if the matrix does not have the row.
template <int D>
__device__ inline uint32_t load_pair(const half* X, int row, int col, int rows) {
    return row < rows ? *reinterpret_cast<const uint32_t*>(X + row * D + col) : 0;
}

// The same for one column: this element and the one in the row below.
template <int D>
__device__ inline uint32_t load_column_pair(const half* X, int row, int col, int rows) {
    const half upper = row < rows ? X[row * D + col] : half{};
    const half lower = row + 1 < rows ? X[(row + 1) * D + col] : half{};
    const half2 pair = __halves2half2(upper, lower);
    return reinterpret_cast<const uint32_t&>(pair);
}

// S = Q K^T for a warp's 16 queries and the keys of a tile that has `left` keys.
template <int D>
__device__ inline void multiply_qk(
    Sums (&S_rmem)[TILES_KV], const uint32_t (&Q_rmem)[D / MMA_K][4], const half* K_tile, int left) {
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < D; k += MMA_K) {
#pragma unroll
        for (int n = 0; n < TILES_KV; ++n) {
            // TODO(1): Load 16 elements of eight keys as a fragment of B, whose columns are keys. A pair of B is two
            //   neighbours in a row of K. Then multiply. (~4 lines)
            const int row = n * MMA_N + lane_id / 4;
            const uint32_t b0 = load_pair<D>(K_tile, row, k + lane_id % 4 * 2, left);
            const uint32_t b1 = load_pair<D>(K_tile, row, k + lane_id % 4 * 2 + 8, left);
            mma_m16n8k16(S_rmem[n], Q_rmem[k / MMA_K], b0, b1);
            // END TODO(1)
        }
    }
}

// Keys past the end of the matrix get -inf and therefore weight 0.
__device__ inline void mask_keys(Sums (&S_rmem)[TILES_KV], int left) {
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < TILES_KV; ++n) {
        const int key = n * MMA_N + lane_id % 4 * 2;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float2 s = get_row(S_rmem[n], i);
            set_row(S_rmem[n], i, {key < left ? s.x : -INFINITY, key + 1 < left ? s.y : -INFINITY});
        }
    }
}

// P = 2^(scale * (S - maximum)), where maximum covers all keys of the row so far. The factor `shrink` rescales earlier
// weights from the old maximum to the new one. i is 0 for row lane_id / 4 of a fragment and 1 for the row 8 below.
// row_sum covers this lane's keys only.
__device__ inline void online_softmax(
    uint32_t (&P_rmem)[TILES_KV][2], const Sums (&S_rmem)[TILES_KV], float (&row_max)[2], float (&row_sum)[2],
    float (&shrink)[2], float scale) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        // TODO(2): row_max of this row becomes the maximum of its old value and S, over the lanes of the quad.
        //   shrink = 2^(scale * (old - new)), which is 0 for the first tile, because old is -inf. (~8 lines)
        float max = row_max[i];
#pragma unroll
        for (int n = 0; n < TILES_KV; ++n) {
            const float2 s = get_row(S_rmem[n], i);
            max = fmaxf(max, fmaxf(s.x, s.y));
        }
        max = quad_max(max);
        shrink[i] = exp2_approx(scale * (row_max[i] - max));
        row_max[i] = max;
        // END TODO(2)
        // TODO(3): Compute P from S, in half. Rescale row_sum, then add this lane's weights before they are rounded.
        //   (~7 lines)
        row_sum[i] *= shrink[i];
#pragma unroll
        for (int n = 0; n < TILES_KV; ++n) {
            const float2 s = get_row(S_rmem[n], i);
            const float2 p = {exp2_approx(scale * (s.x - row_max[i])), exp2_approx(scale * (s.y - row_max[i]))};
            row_sum[i] += p.x + p.y;
            P_rmem[n][i] = pack(p);
        }
        // END TODO(3)
    }
}

// O = shrink * O + P V.
template <int D>
__device__ inline void multiply_pv(
    float (&O_rmem)[D / MMA_N][4], const uint32_t (&P_rmem)[TILES_KV][2], const half* V_tile, int left,
    const float (&shrink)[2]) {
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < D / MMA_N; ++n) {
        Sums PV_rmem = {};
#pragma unroll
        for (int k = 0; k < TILES_KV; k += 2) {
            // TODO(4): Build the fragment of A, 16 queries x 16 keys, from two tiles of S, 16x8 each. This lane already
            //   holds every register of it. (~1 line)
            const uint32_t a[4] = {P_rmem[k][0], P_rmem[k][1], P_rmem[k + 1][0], P_rmem[k + 1][1]};
            // END TODO(4)
            // TODO(5): Load 16 keys x 8 columns of V as a fragment of B. A pair of B is one column of two neighbouring
            //   rows. Then multiply. (~5 lines)
            const int row = k * MMA_N + lane_id % 4 * 2;
            const int col = n * MMA_N + lane_id / 4;
            const uint32_t b0 = load_column_pair<D>(V_tile, row, col, left);
            const uint32_t b1 = load_column_pair<D>(V_tile, row + 8, col, left);
            mma_m16n8k16(PV_rmem, a, b0, b1);
            // END TODO(5)
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float2 pv = get_row(PV_rmem, i);
            O_rmem[n][2 * i] = shrink[i] * O_rmem[n][2 * i] + pv.x;
            O_rmem[n][2 * i + 1] = shrink[i] * O_rmem[n][2 * i + 1] + pv.y;
        }
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS) flash_attn_mma_fragments_f16_kernel(
    const half* __restrict__ Q,  // [B, H, N, D]
    const half* __restrict__ K,  // [B, H, N, D]
    const half* __restrict__ V,  // [B, H, N, D]
    half* __restrict__ O,        // [B, H, N, D]
    int N, float scale) {
    const int warp_id = threadIdx.x / 32;
    const int lane_id = threadIdx.x % 32;
    // Consecutive blocks go along the queries of a head. Blocks that run at the same time then share its K and V in L2.
    const int tiles_q = (N - 1) / BLOCK_Q + 1;
    const int64_t head = int64_t{blockIdx.x / tiles_q} * N * D;
    const int off_q = blockIdx.x % tiles_q * BLOCK_Q + warp_id * MMA_M;
    const int tiles_kv = (N - 1) / BLOCK_KV + 1;
    const half* const Q_tile = Q + head + int64_t{off_q} * D;
    uint32_t Q_rmem[D / MMA_K][4];
#pragma unroll
    for (int k = 0; k < D; k += MMA_K) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            // TODO(6): Q_rmem[k / MMA_K] is the fragment of A for columns k to k + 15. Rows past the end of Q are 0.
            //   (~3 lines)
            const int row = lane_id / 4 + i % 2 * 8;
            const int col = k + lane_id % 4 * 2 + i / 2 * 8;
            Q_rmem[k / MMA_K][i] = load_pair<D>(Q_tile, row, col, N - off_q);
            // END TODO(6)
        }
    }

    float O_rmem[D / MMA_N][4] = {};
    float row_max[2] = {-INFINITY, -INFINITY};
    float row_sum[2] = {};
    for (int tile = 0; tile < tiles_kv; ++tile) {
        const int left = N - tile * BLOCK_KV;
        const int64_t off = head + int64_t{tile} * BLOCK_KV * D;
        Sums S_rmem[TILES_KV] = {};
        multiply_qk<D>(S_rmem, Q_rmem, K + off, left);
        if (left < BLOCK_KV) mask_keys(S_rmem, left);
        uint32_t P_rmem[TILES_KV][2];
        float shrink[2];
        online_softmax(P_rmem, S_rmem, row_max, row_sum, shrink, scale);
        multiply_pv<D>(O_rmem, P_rmem, V + off, left, shrink);
    }

#pragma unroll
    for (int i = 0; i < 2; ++i) {
        // TODO(7): Divide the row by its sum, of which each lane of the quad holds a part. Store it as halves, a pair
        //   of columns at a time. Store only rows that O has. (~9 lines)
        const int row = off_q + lane_id / 4 + i * 8;
        const float inverse = 1.0f / quad_sum(row_sum[i]);
        half* const O_row = O + head + int64_t{row} * D + lane_id % 4 * 2;
        if (row >= N) continue;
#pragma unroll
        for (int n = 0; n < D / MMA_N; ++n) {
            const half2 pair = __floats2half2_rn(O_rmem[n][2 * i] * inverse, O_rmem[n][2 * i + 1] * inverse);
            *reinterpret_cast<half2*>(O_row + n * MMA_N) = pair;
        }
        // END TODO(7)
    }
}

template <int D>
void launch(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    const int tiles_q = (N - 1) / BLOCK_Q + 1;
    const float scale = static_cast<float>(M_LOG2E / std::sqrt(double{D}));  // exp(x) is 2^(x log2(e))
    flash_attn_mma_fragments_f16_kernel<D><<<heads * tiles_q, THREADS, 0, stream>>>(Q, K, V, O, N, scale);
}

KATA_EXPORT void flash_attn_mma_fragments_f16(
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
