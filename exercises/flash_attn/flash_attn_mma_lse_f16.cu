// flash_attn_mma_lse_f16: O = softmax(Q K^T / sqrt(D)) V, and LSE = log(sum of exp(Q K^T / sqrt(D))) of each row
//
// Shapes     Q, K, V, O: [B, H, N, D] f16, LSE: [B, H, N] f32, contiguous, 16-byte aligned bases,
//            D one of 32, 64, 96, 128
// Technique  that of the rung before; a row's maximum and sum, already in registers, are stored as one number
// New        over flash_attn_mma_stages_split_q_shared_kv_acc_f32_rr_swizzle_qkv_warp32: LSE. It is enough to recompute
//            the weights (backward pass) or to merge the results of two sets of keys (decoding)
// Bound      Tensor Cores, at the rate of mma.sync; LSE is one float per D halves of O
#include "kata.cuh"
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 16;
constexpr int WARPS = 4;
constexpr int THREADS = WARPS * 32;
constexpr int TILES_Q = 2;  // mma tiles of queries per warp
constexpr int WARP_Q = TILES_Q * MMA_M;
constexpr int BLOCK_Q = WARPS * WARP_Q;  // queries per block
constexpr int BLOCK_KV = 64;             // keys, and rows of V, per tile
constexpr int TILES_KV = BLOCK_KV / MMA_N;
constexpr int STAGES = 2;  // slots of the ring
constexpr int CHUNK = 8;   // halves in one access of 16 bytes

// A slot of the ring holds tiles of K and tiles of V in turn.
template <int D>
union Slot {
    half K[BLOCK_KV][D];
    half V[BLOCK_KV][D];
};

// The shared memory of a block.
template <int D>
struct Smem {
    half Q[BLOCK_Q][D];
    Slot<D> ring[STAGES];
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

// A lane's sums of one mma [16, 8], in float: two neighbouring columns of row lane_id / 4 and of the row 8 below.
using Sums = float[4];

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

// The position, in a row of COLS halves in shared memory, of the chunk that starts at column col. The eight chunks that
// ldmatrix reads at a time come from eight rows at one column. Together they must cover all 32 banks once.
template <int COLS>
__device__ inline int swizzle(int row, int col) {
    constexpr int PERIOD = COLS / CHUNK % 8 == 0 ? 8 : 4;
    constexpr int SPAN = PERIOD * CHUNK;  // columns whose chunks trade places
    return col / SPAN * SPAN + (col % SPAN ^ row / (8 / PERIOD) % PERIOD * CHUNK);
}

// global -> shared: rows of D halves. The matrix has `left` of them from here on. The others become 0: a row of V past
// the end has weight 0, but unwritten memory may hold nan, and 0 * nan is nan.
template <int D, int ROWS>
__device__ inline void load_tile(half (&smem)[ROWS][D], const half* gmem, int left) {
    constexpr int SPAN = D % 64 == 0 ? 64 : 32;     // columns and
    constexpr int STEP = THREADS / (SPAN / CHUNK);  // rows that the block copies at a time
    static_assert(ROWS % STEP == 0 && STEP % 8 == 0, "every thread copies equally much, and swizzles alike each time");
    const int row = threadIdx.x / (SPAN / CHUNK);
    const int col = threadIdx.x % (SPAN / CHUNK) * CHUNK;
    half* const to = &smem[row][swizzle<D>(row, col)];
    const half* const from = gmem + row * D + col;
    const auto copy = [&](bool whole) {
#pragma unroll
        for (int i = 0; i < ROWS; i += STEP) {
            const bool inside = whole || row + i < left;
#pragma unroll
            for (int j = 0; j < D; j += SPAN) cp_async16(to + i * D + j, inside ? from + i * D + j : gmem, inside);
        }
    };
    left >= ROWS ? copy(true) : copy(false);
}

// S = Q K^T for a warp's 32 queries and the keys of a tile. One ldmatrix loads the fragments of two neighbouring tiles
// of keys: lanes 0 to 15 address the left one, columns k and k + 8, and lanes 16 to 31 the right one.
template <int D>
__device__ inline void multiply_qk(
    Sums (&S_rmem)[TILES_Q][TILES_KV], const half (&Q_smem)[BLOCK_Q][D], const half (&K_smem)[BLOCK_KV][D]) {
    const int warp_id = threadIdx.x / 32;
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < D; k += MMA_K) {
        uint32_t Q_rmem[TILES_Q][4];
#pragma unroll
        for (int m = 0; m < TILES_Q; ++m) {
            const int q_row = warp_id * WARP_Q + m * MMA_M + lane_id % 16;
            ldmatrix_x4(Q_rmem[m], &Q_smem[q_row][swizzle<D>(q_row, k + lane_id / 16 * CHUNK)]);
        }
#pragma unroll
        for (int n = 0; n < TILES_KV; n += 2) {
            uint32_t K_rmem[4];
            const int row = n * MMA_N + lane_id / 16 * MMA_N + lane_id % 8;
            ldmatrix_x4(K_rmem, &K_smem[row][swizzle<D>(row, k + lane_id / 8 % 2 * CHUNK)]);
#pragma unroll
            for (int m = 0; m < TILES_Q; ++m) {
                mma_m16n8k16(S_rmem[m][n], Q_rmem[m], K_rmem[0], K_rmem[1]);
                mma_m16n8k16(S_rmem[m][n + 1], Q_rmem[m], K_rmem[2], K_rmem[3]);
            }
        }
    }
}

// Keys past the end of the matrix get -inf and therefore weight 0.
__device__ inline void mask_keys(Sums (&S_rmem)[TILES_KV], int left) {
    left -= threadIdx.x % 4 * 2;  // counted from this lane's first key
#pragma unroll
    for (int n = 0; n < TILES_KV; ++n) {
        const int key = n * MMA_N;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float2 s = get_row(S_rmem[n], i);
            set_row(S_rmem[n], i, {key < left ? s.x : -INFINITY, key + 1 < left ? s.y : -INFINITY});
        }
    }
}

// row_max becomes the maximum over all keys of the row so far. The factor `shrink` rescales earlier weights from the
// old maximum to the new one. i is 0 for row lane_id / 4 of a fragment and 1 for the row 8 below.
__device__ inline void raise_maximum(
    float (&row_max)[2], float (&row_sum)[2], float (&shrink)[2], const Sums (&S_rmem)[TILES_KV], float scale) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        float max = row_max[i];
#pragma unroll
        for (int n = 0; n < TILES_KV; ++n) {
            const float2 s = get_row(S_rmem[n], i);
            max = fmaxf(max, fmaxf(s.x, s.y));
        }
        max = quad_max(max);
        shrink[i] = exp2_approx(scale * (row_max[i] - max));
        row_max[i] = max;
        row_sum[i] *= shrink[i];
    }
}

// P = 2^(scale * (S - row_max)) in half, for two tiles of S: a fragment of A for 16 keys. row_sum covers this lane's
// keys only.
__device__ inline void weigh(
    uint32_t (&P_rmem)[4], const Sums& left, const Sums& right, const float (&row_max)[2], float (&row_sum)[2],
    float scale) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 s = get_row(i < 2 ? left : right, i % 2);
        const float max = row_max[i % 2];
        const float2 p = {exp2_approx(scale * (s.x - max)), exp2_approx(scale * (s.y - max))};
        row_sum[i % 2] += p.x + p.y;
        P_rmem[i] = pack(p);
    }
}

// O = shrink * O + P V. P is computed 16 keys at a time. An mma keeps the Tensor Cores busy for several cycles, in
// which the warp can issue other instructions: here the exponentials of the next keys.
template <int D>
__device__ inline void multiply_pv(
    Sums (&O_rmem)[TILES_Q][D / MMA_N], const Sums (&S_rmem)[TILES_Q][TILES_KV], const half (&V_smem)[BLOCK_KV][D],
    const float (&row_max)[TILES_Q][2], float (&row_sum)[TILES_Q][2], const float (&shrink)[TILES_Q][2], float scale) {
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < TILES_Q; ++m) {
#pragma unroll
        for (int n = 0; n < D / MMA_N; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float2 o = get_row(O_rmem[m][n], i);
                set_row(O_rmem[m][n], i, {shrink[m][i] * o.x, shrink[m][i] * o.y});
            }
        }
    }
#pragma unroll
    for (int k = 0; k < TILES_KV; k += 2) {
        uint32_t P_rmem[TILES_Q][4];
#pragma unroll
        for (int m = 0; m < TILES_Q; ++m) {
            weigh(P_rmem[m], S_rmem[m][k], S_rmem[m][k + 1], row_max[m], row_sum[m], scale);
        }
#pragma unroll
        for (int n = 0; n < D / MMA_N; n += 2) {
            uint32_t V_rmem[4];
            const int row = k * MMA_N + lane_id % 16;
            const int col = n * MMA_N + lane_id / 16 * CHUNK;
            ldmatrix_x4_trans(V_rmem, &V_smem[row][swizzle<D>(row, col)]);
#pragma unroll
            for (int m = 0; m < TILES_Q; ++m) {
                mma_m16n8k16(O_rmem[m][n], P_rmem[m], V_rmem[0], V_rmem[1]);
                mma_m16n8k16(O_rmem[m][n + 1], P_rmem[m], V_rmem[2], V_rmem[3]);
            }
        }
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS, D == 32 ? 2 : 0) flash_attn_mma_lse_f16_kernel(
    const half* __restrict__ Q,  // [B, H, N, D]
    const half* __restrict__ K,  // [B, H, N, D]
    const half* __restrict__ V,  // [B, H, N, D]
    half* __restrict__ O,        // [B, H, N, D]
    float* __restrict__ LSE,     // [B, H, N]
    int N, float scale) {
    extern __shared__ __align__(16) unsigned char smem_bytes[];
    auto& smem = *reinterpret_cast<Smem<D>*>(smem_bytes);
    // Consecutive blocks go along the queries of a head. Blocks that run at the same time then share its K and V in L2.
    const int tiles_q = (N - 1) / BLOCK_Q + 1;
    const int64_t head = int64_t{blockIdx.x / tiles_q} * N * D;
    const int off_q = blockIdx.x % tiles_q * BLOCK_Q;
    const int tiles_kv = (N - 1) / BLOCK_KV + 1;
    // The tiles K_0, V_0, K_1, V_1, ... are numbered 0, 1, 2, 3, ... and use the ring's slots in turn.
    const auto load_kv = [&](int number) {
        const int off_kv = number / 2 * BLOCK_KV;
        const int64_t from = head + int64_t{off_kv} * D;
        if (number < 2 * tiles_kv && number % 2 == 0) load_tile<D>(smem.ring[number % STAGES].K, K + from, N - off_kv);
        if (number < 2 * tiles_kv && number % 2 == 1) load_tile<D>(smem.ring[number % STAGES].V, V + from, N - off_kv);
        cp_async_commit();
    };
    load_tile<D>(smem.Q, Q + head + int64_t{off_q} * D, N - off_q);
    for (int number = 0; number < STAGES - 1; ++number) load_kv(number);

    Sums O_rmem[TILES_Q][D / MMA_N] = {};
    float row_max[TILES_Q][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
    float row_sum[TILES_Q][2] = {};
    for (int tile = 0; tile < tiles_kv; ++tile) {
        const int number = 2 * tile;  // of K; V's is one higher
        cp_async_wait<STAGES - 2>();  // this thread's part of K has arrived
        __syncthreads();              // all parts have arrived, and all threads are done with the V before
        load_kv(number + STAGES - 1);
        Sums S_rmem[TILES_Q][TILES_KV] = {};
        multiply_qk<D>(S_rmem, smem.Q, smem.ring[number % STAGES].K);
        const int left = N - tile * BLOCK_KV;
        float shrink[TILES_Q][2];
#pragma unroll
        for (int m = 0; m < TILES_Q; ++m) {
            if (left < BLOCK_KV) mask_keys(S_rmem[m], left);
            raise_maximum(row_max[m], row_sum[m], shrink[m], S_rmem[m], scale);
        }
        cp_async_wait<STAGES - 2>();  // V has arrived
        __syncthreads();              // for all threads, and all threads are done with K
        load_kv(number + STAGES);
        multiply_pv<D>(O_rmem, S_rmem, smem.ring[(number + 1) % STAGES].V, row_max, row_sum, shrink, scale);
    }

    const int warp_id = threadIdx.x / 32;
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < TILES_Q; ++m) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = off_q + warp_id * WARP_Q + m * MMA_M + lane_id / 4 + i * 8;
            float inverse = 1.0f;
            // TODO(1): inverse is 1 over the full sum of the row. LSE is the natural logarithm of the sum of
            //   exponentials. The sum is relative to row_max, and row_max times scale is an exponent of two. One lane
            //   of the quad stores LSE, if O has the row. (~4 lines)
            // END TODO(1)
            half* const O_row = O + head + int64_t{row} * D + lane_id % 4 * 2;
            if (row >= N) continue;
#pragma unroll
            for (int n = 0; n < D / MMA_N; ++n) {
                const float2 o = get_row(O_rmem[m][n], i);
                *reinterpret_cast<uint32_t*>(O_row + n * MMA_N) = pack({o.x * inverse, o.y * inverse});
            }
        }
    }
}

template <int D>
void launch(const half* Q, const half* K, const half* V, half* O, float* LSE, int heads, int N, cudaStream_t stream) {
    const int tiles_q = (N - 1) / BLOCK_Q + 1;
    const float scale = static_cast<float>(M_LOG2E / std::sqrt(double{D}));  // exp(x) is 2^(x log2(e))
    // More than 48 KB of shared memory must be requested.
    const auto kernel = flash_attn_mma_lse_f16_kernel<D>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Smem<D>));
    kernel<<<heads * tiles_q, THREADS, sizeof(Smem<D>), stream>>>(Q, K, V, O, LSE, N, scale);
}

KATA_EXPORT void flash_attn_mma_lse_f16(
    const half* Q, const half* K, const half* V, half* O, float* LSE, int B, int H, int N, int D, cudaStream_t stream) {
    switch (D) {
        case 32:
            return launch<32>(Q, K, V, O, LSE, B * H, N, stream);
        case 64:
            return launch<64>(Q, K, V, O, LSE, B * H, N, stream);
        case 96:
            return launch<96>(Q, K, V, O, LSE, B * H, N, stream);
        case 128:
            return launch<128>(Q, K, V, O, LSE, B * H, N, stream);
    }
}
