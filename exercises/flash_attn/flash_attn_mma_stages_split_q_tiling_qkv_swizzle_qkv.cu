// flash_attn_mma_stages_split_q_tiling_qkv_swizzle_qkv: O = softmax(Q K^T / sqrt(D)) V, all slices swizzled
//
// Shapes     Q, K, V, O: [B, H, N, D] f16, contiguous, 16-byte aligned bases, D one of 32, 64, 96, 128, 256, 512, 1024
// Technique  64 queries per block, 16 per warp, and at most 256 columns of O; for each tile of 64 keys, slices of 32
//            columns of Q and K, then of V, pass through rings of three slots
// New        over flash_attn_mma_stages_split_q_tiling_qkv_swizzle_qk: the slices of V are swizzled too, and no padding
//            is left
// Bound      shared memory, and L2: Q, K and a part of V are read per 64 queries and 256 columns of O
#include "kata.cuh"
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 16;
constexpr int WARPS = 4;
constexpr int THREADS = WARPS * 32;
constexpr int BLOCK_Q = WARPS * MMA_M;  // queries per block
constexpr int BLOCK_KV = 64;            // keys, and rows of V, per tile
constexpr int TILES_KV = BLOCK_KV / MMA_N;
constexpr int BLOCK_D = 32;  // columns of Q, K and V in a slice
constexpr int TILES_D = BLOCK_D / MMA_N;
constexpr int MAX_COLS = 256;  // columns of O per block: those of 16 rows are half of a warp's registers
constexpr int STAGES = 3;      // slots for slices of Q, and as many for K and V
constexpr int CHUNK = 8;       // halves in one access of 16 bytes

// The shared memory of a block.
struct Smem {
    half Q[STAGES][BLOCK_Q][BLOCK_D];
    half K[STAGES][BLOCK_KV][BLOCK_D];
    half V[STAGES][BLOCK_KV][BLOCK_D];
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

// The position of the chunk of column col in a row of COLS halves. Among the eight rows that ldmatrix reads at a time,
// all (rows of a multiple of 128 bytes) or every second one (others) start in the same banks. Chunks trade places
// within a row, so that the eight touch no bank twice.
template <int COLS>
__device__ inline int swizzle(int row, int col) {
    constexpr int PERIOD = COLS / CHUNK % 8 == 0 ? 8 : 4;  // chunks of a row that trade places
    return col ^ row / (8 / PERIOD) % PERIOD * CHUNK;
}

// global -> shared: a slice of rows of D halves. The matrix has `left` of them from here on. The others become 0: a row
// of V past the end has weight 0, but unwritten memory may hold nan, and 0 * nan is nan. All rows are swizzled.
template <int D, int ROWS>
__device__ inline void load_tile(half (&smem)[ROWS][BLOCK_D], const half* gmem, int left) {
    static_assert(ROWS * BLOCK_D / CHUNK % THREADS == 0, "every thread copies equally much");
#pragma unroll
    for (int i = 0; i < ROWS * BLOCK_D / CHUNK / THREADS; ++i) {
        const int chunk = i * THREADS + threadIdx.x;
        const int row = chunk / (BLOCK_D / CHUNK);
        const int col = chunk % (BLOCK_D / CHUNK) * CHUNK;
        cp_async16(&smem[row][swizzle<BLOCK_D>(row, col)], gmem + (row < left ? row * D + col : 0), row < left);
    }
}

// S += Q K^T over a slice, for a warp's 16 queries and the keys of a tile. One ldmatrix loads the fragments of two
// neighbouring tiles of keys: lanes 0 to 15 address the left one, columns k and k + 8, and lanes 16 to 31 the right
// one.
__device__ inline void multiply_qk(
    Sums (&S_rmem)[TILES_KV], const half (&Q_smem)[BLOCK_Q][BLOCK_D], const half (&K_smem)[BLOCK_KV][BLOCK_D]) {
    const int warp_id = threadIdx.x / 32;
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < BLOCK_D; k += MMA_K) {
        uint32_t Q_rmem[4];
        const int row = warp_id * MMA_M + lane_id % 16;
        ldmatrix_x4(Q_rmem, &Q_smem[row][swizzle<BLOCK_D>(row, k + lane_id / 16 * CHUNK)]);
#pragma unroll
        for (int n = 0; n < TILES_KV; n += 2) {
            uint32_t K_rmem[4];
            const int row = n * MMA_N + lane_id / 16 * MMA_N + lane_id % 8;
            ldmatrix_x4(K_rmem, &K_smem[row][swizzle<BLOCK_D>(row, k + lane_id / 8 % 2 * CHUNK)]);
            mma_m16n8k16(S_rmem[n], Q_rmem, K_rmem[0], K_rmem[1]);
            mma_m16n8k16(S_rmem[n + 1], Q_rmem, K_rmem[2], K_rmem[3]);
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
#pragma unroll
        for (int n = 0; n < TILES_KV; ++n) {
            const float2 s = get_row(S_rmem[n], i);
            const float2 p = {exp2_approx(scale * (s.x - row_max[i])), exp2_approx(scale * (s.y - row_max[i]))};
            row_sum[i] += p.x + p.y;
            P_rmem[n][i] = pack(p);
        }
    }
}

// O = shrink * O + P V, for the columns of a slice.
__device__ inline void multiply_pv(
    float (&O_rmem)[TILES_D][4], const uint32_t (&P_rmem)[TILES_KV][2], const half (&V_smem)[BLOCK_KV][BLOCK_D],
    const float (&shrink)[2]) {
    const int lane_id = threadIdx.x % 32;
    Sums PV_rmem[TILES_D] = {};
#pragma unroll
    for (int k = 0; k < TILES_KV; k += 2) {
        const uint32_t a[4] = {P_rmem[k][0], P_rmem[k][1], P_rmem[k + 1][0], P_rmem[k + 1][1]};
#pragma unroll
        for (int n = 0; n < TILES_D; n += 2) {
            uint32_t V_rmem[4];
            // TODO(1): Load the fragments of two neighbouring tiles of V from where swizzle puts each chunk, and add
            //   the products of P's fragment with them. (~4 lines)
            // END TODO(1)
        }
    }
#pragma unroll
    for (int n = 0; n < TILES_D; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float2 pv = get_row(PV_rmem[n], i);
            O_rmem[n][2 * i] = shrink[i] * O_rmem[n][2 * i] + pv.x;
            O_rmem[n][2 * i + 1] = shrink[i] * O_rmem[n][2 * i + 1] + pv.y;
        }
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS) flash_attn_mma_stages_split_q_tiling_qkv_swizzle_qkv_kernel(
    const half* __restrict__ Q,  // [B, H, N, D]
    const half* __restrict__ K,  // [B, H, N, D]
    const half* __restrict__ V,  // [B, H, N, D]
    half* __restrict__ O,        // [B, H, N, D]
    int N, float scale) {
    extern __shared__ __align__(16) unsigned char smem_bytes[];
    auto& smem = *reinterpret_cast<Smem*>(smem_bytes);
    constexpr int COLS = D < MAX_COLS ? D : MAX_COLS;  // of O
    constexpr int GROUPS = D / COLS;
    // Consecutive blocks go along the queries of a head. Blocks that run at the same time then share its K and V in L2.
    const int tiles_q = (N - 1) / BLOCK_Q + 1;
    const int64_t head = int64_t{blockIdx.x / (tiles_q * GROUPS)} * N * D;
    const int off_q = blockIdx.x / GROUPS % tiles_q * BLOCK_Q;
    const int off_col = blockIdx.x % GROUPS * COLS;
    const int tiles_kv = (N - 1) / BLOCK_KV + 1;
    constexpr int SLICES = D / BLOCK_D;  // of Q and K in a tile, then as many steps for V as COLS has slices
    constexpr int STEPS = SLICES + COLS / BLOCK_D;
    const auto load = [&](int step) {
        const int64_t tile_kv = head + int64_t{step / STEPS * BLOCK_KV} * D;
        const int left = N - step / STEPS * BLOCK_KV;
        const int off_d = step % STEPS * BLOCK_D;
        const int slot = step % STAGES;
        if (left > 0 && off_d < D) {
            load_tile<D>(smem.Q[slot], Q + head + int64_t{off_q} * D + off_d, N - off_q);
            load_tile<D>(smem.K[slot], K + tile_kv + off_d, left);
        } else if (left > 0) {
            load_tile<D>(smem.V[slot], V + tile_kv + off_col + off_d - D, left);
        }
        cp_async_commit();
    };
    for (int step = 0; step < STAGES - 1; ++step) load(step);

    float O_rmem[COLS / BLOCK_D][TILES_D][4] = {};
    float row_max[2] = {-INFINITY, -INFINITY};
    float row_sum[2] = {};
    int step = 0;
    // The slot of the next slice, which has arrived for all threads.
    const auto next = [&] {
        cp_async_wait<STAGES - 2>();  // this thread's part of the slice has arrived; later slices may be in flight
        __syncthreads();              // all parts have arrived, and all threads are done with the step before
        load(step + STAGES - 1);
        return step++ % STAGES;
    };
    for (int tile = 0; tile < tiles_kv; ++tile) {
        Sums S_rmem[TILES_KV] = {};
#pragma unroll 1  // the body has the same length for any D
        for (int slice = 0; slice < SLICES; ++slice) {
            const int slot = next();
            multiply_qk(S_rmem, smem.Q[slot], smem.K[slot]);
        }
        const int left = N - tile * BLOCK_KV;
        if (left < BLOCK_KV) mask_keys(S_rmem, left);
        uint32_t P_rmem[TILES_KV][2];
        float shrink[2];
        online_softmax(P_rmem, S_rmem, row_max, row_sum, shrink, scale);
#pragma unroll
        for (int slice = 0; slice < COLS / BLOCK_D; ++slice) multiply_pv(O_rmem[slice], P_rmem, smem.V[next()], shrink);
    }

    const int warp_id = threadIdx.x / 32;
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = off_q + warp_id * MMA_M + lane_id / 4 + i * 8;
        const float inverse = 1.0f / quad_sum(row_sum[i]);
        half* const O_row = O + head + int64_t{row} * D + off_col + lane_id % 4 * 2;
        if (row >= N) continue;
#pragma unroll
        for (int n = 0; n < COLS / MMA_N; ++n) {
            const float* const o = &O_rmem[n / TILES_D][n % TILES_D][2 * i];
            *reinterpret_cast<half2*>(O_row + n * MMA_N) = __floats2half2_rn(o[0] * inverse, o[1] * inverse);
        }
    }
}

template <int D>
void launch(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    const int blocks = heads * ((N - 1) / BLOCK_Q + 1) * (D < MAX_COLS ? 1 : D / MAX_COLS);
    const float scale = static_cast<float>(M_LOG2E / std::sqrt(double{D}));  // exp(x) is 2^(x log2(e))
    // More than 48 KB of shared memory must be requested.
    const auto kernel = flash_attn_mma_stages_split_q_tiling_qkv_swizzle_qkv_kernel<D>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Smem));
    kernel<<<blocks, THREADS, sizeof(Smem), stream>>>(Q, K, V, O, N, scale);
}

KATA_EXPORT void flash_attn_mma_stages_split_q_tiling_qkv_swizzle_qkv(
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
