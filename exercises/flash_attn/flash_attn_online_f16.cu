// flash_attn_online_f16: O = softmax(Q K^T / sqrt(D)) V in one kernel, a loop over tiles of keys, on CUDA cores
//
// Shapes     Q, K, V, O: [B, H, N, D] f16, contiguous, 16-byte aligned bases, D one of 32, 64, 96, 128
// Technique  32 queries per block, 8 lanes per query; a tile of 32 keys is 4 logits per lane; O, the row's maximum and
//            its sum in registers, all sums in float
// New        over flash_attn_materialised_f16: online softmax. When a tile has a new maximum, the earlier sums are
//            rescaled to it. No logit is needed twice, and none leaves the registers
// Bound      shared memory and FMA, about equally: 5 loads of 16 bytes for 16 products
#include "kata.cuh"
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int LANES = 8;      // that share a query
constexpr int BLOCK_Q = 32;   // queries per block
constexpr int BLOCK_KV = 32;  // keys, and rows of V, per tile
constexpr int THREADS = BLOCK_Q * LANES;
constexpr int KEYS = BLOCK_KV / LANES;  // logits per lane
constexpr int CHUNK = 8;                // halves in one access of 16 bytes
constexpr int VEC = 4;                  // floats in one access of 16 bytes
// Floats that pad a row in shared memory. Eight lanes read eight rows of K at once. These rows then start 16 bytes
// apart modulo the 128 bytes of the 32 banks, and touch no bank twice.
constexpr int PAD = VEC;

// The shared memory of a block.
template <int D>
struct Smem {
    float Q[BLOCK_Q][D + PAD];
    float K[BLOCK_KV][D + PAD];
    float V[BLOCK_KV][D + PAD];
};

// Reductions over the eight lanes of a query, 8 i to 8 i + 7.
__device__ inline float group_max(float x) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, offset));
    return x;
}

__device__ inline float group_sum(float x) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffff, x, offset);
    return x;
}

// global -> shared: rows of D halves, as floats. The matrix has `left` of them from here on. The others become 0: a row
// of V past the end has weight 0, but unwritten memory may hold nan, and 0 * nan is nan.
template <int D, int ROWS>
__device__ inline void load_tile(float (&smem)[ROWS][D + PAD], const half* gmem, int left) {
#pragma unroll
    for (int chunk = threadIdx.x; chunk < ROWS * D / CHUNK; chunk += THREADS) {
        const int row = chunk / (D / CHUNK);
        const int col = chunk % (D / CHUNK) * CHUNK;
        uint4 halves = {};
        if (row < left) halves = *reinterpret_cast<const uint4*>(gmem + row * D + col);
        const half2* const pairs = reinterpret_cast<const half2*>(&halves);
#pragma unroll
        for (int i = 0; i < CHUNK / VEC; ++i) {
            const float2 x = __half22float2(pairs[2 * i]);
            const float2 y = __half22float2(pairs[2 * i + 1]);
            *reinterpret_cast<float4*>(&smem[row][col + i * VEC]) = make_float4(x.x, x.y, y.x, y.y);
        }
    }
}

// S = Q K^T for this thread's query and its keys of a tile: lane, lane + 8, ...
template <int D>
__device__ inline void multiply_qk(float (&S_rmem)[KEYS], const float (&Q_row)[D + PAD], const Smem<D>& smem) {
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (int d = 0; d < D; d += VEC) {
        const float4 q = *reinterpret_cast<const float4*>(&Q_row[d]);
#pragma unroll
        for (int n = 0; n < KEYS; ++n) {
            const float4 k = *reinterpret_cast<const float4*>(&smem.K[n * LANES + lane][d]);
            S_rmem[n] += q.x * k.x + q.y * k.y + q.z * k.z + q.w * k.w;
        }
    }
}

// Keys past the end of the matrix get -inf and therefore weight 0.
__device__ inline void mask_keys(float (&S_rmem)[KEYS], int left) {
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (int n = 0; n < KEYS; ++n) {
        if (n * LANES + lane >= left) S_rmem[n] = -INFINITY;
    }
}

// S becomes P = 2^(scale * (S - maximum)), where maximum covers all keys of the row so far. The factor `shrink`
// rescales earlier weights from the old maximum to the new one. row_sum covers this lane's keys only.
__device__ inline void online_softmax(
    float (&S_rmem)[KEYS], float& row_max, float& row_sum, float& shrink, float scale) {
    // TODO(1): row_max becomes the maximum of its old value and S, over the eight lanes. shrink = 2^(scale *
    //   (old - new)), which is 0 for the first tile, because old is -inf. (~5 lines)
    // END TODO(1)
    // TODO(2): S becomes P. Rescale row_sum, then add this lane's weights. (~5 lines)
    // END TODO(2)
}

// O = shrink * O + P V. A thread has columns 4 lane to 4 lane + 3 of every 32, for all keys of the tile.
template <int D>
__device__ inline void multiply_pv(
    float4 (&O_rmem)[D / LANES / VEC], const float (&P_rmem)[KEYS], const Smem<D>& smem, float shrink) {
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (float4& o : O_rmem) o = make_float4(shrink * o.x, shrink * o.y, shrink * o.z, shrink * o.w);
#pragma unroll
    for (int key = 0; key < BLOCK_KV; ++key) {
        // TODO(3): Add this key's row of V times its weight, which one of the eight lanes has. A lane's four columns
        //   are one load, and the loads of the eight lanes are neighbours. (~8 lines)
        // END TODO(3)
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS) flash_attn_online_f16_kernel(
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
    const int query = threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    load_tile<D>(smem.Q, Q + head + int64_t{off_q} * D, N - off_q);

    float4 O_rmem[D / LANES / VEC] = {};
    float row_max = -INFINITY;
    float row_sum = 0.0f;
    for (int tile = 0; tile < tiles_kv; ++tile) {
        const int off_kv = tile * BLOCK_KV;
        // TODO(4): Load this tile of K and of V. Compute S, P and P V, with keys past the last one masked. No thread
        //   may read an incomplete tile, or overwrite one that is still read. (~9 lines)
        // END TODO(4)
    }

    float inverse = 1.0f;
    // TODO(5): The factor that divides the row by its sum, of which each of the eight lanes holds a part. (~1 line)
    // END TODO(5)
    if (off_q + query >= N) return;
    half* const O_row = O + head + int64_t{off_q + query} * D;
#pragma unroll
    for (int n = 0; n < D / LANES / VEC; ++n) {
        const float4 o = O_rmem[n];
        auto* const pairs = reinterpret_cast<half2*>(O_row + (n * LANES + lane) * VEC);
        pairs[0] = __floats2half2_rn(o.x * inverse, o.y * inverse);
        pairs[1] = __floats2half2_rn(o.z * inverse, o.w * inverse);
    }
}

template <int D>
void launch(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    const int tiles_q = (N - 1) / BLOCK_Q + 1;
    const float scale = static_cast<float>(M_LOG2E / std::sqrt(double{D}));  // exp(x) is 2^(x log2(e))
    // More than 48 KB of shared memory must be requested.
    const auto kernel = flash_attn_online_f16_kernel<D>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Smem<D>));
    kernel<<<heads * tiles_q, THREADS, sizeof(Smem<D>), stream>>>(Q, K, V, O, N, scale);
}

KATA_EXPORT void flash_attn_online_f16(
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
