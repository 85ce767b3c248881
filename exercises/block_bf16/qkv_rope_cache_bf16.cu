// qkv_rope_cache_bf16: of each token's heads, queries and keys get an rms_norm and a rotation by the token's position;
//                      queries go to q_out, keys and values to the token's slot of the caches
//
// Shapes     qkv: [T, 6 Hk, D], of each token 4 Hk queries, Hk keys, Hk values, qw, kw: [D], k_cache, v_cache: [S, Hk,
//            D], q_out: [T, 4 Hk, D] bf16, pos: [T] i32 in 0..2^17, slot: [T] i32 in 0..S-1, all different, or -1: no
//            slot; row-major, contiguous, 16-byte aligned bases, any T, Hk, S >= 1, D 64 or 128; rows of the caches
//            that no token has stay as they are
// Technique  one warp per token; D / 16 lanes per head, each with eight columns of either half, so that a pair is in
//            one lane; sines and cosines once for all heads of the token
// New        over rope_f32x4_pack: one row has three fates, the norm's sum is over a part of a warp, and a table says
//            where rows are stored
// Bound      memory bandwidth
#include "kata.cuh"
#include <cmath>
#include <cstdint>
#include <cuda_bf16.h>

constexpr int WARP_SIZE = 32;
constexpr int WARPS = 4;  // tokens per block
constexpr int THREADS = WARPS * WARP_SIZE;
constexpr int GROUP = 4;  // query heads per key head
constexpr int VEC = 8;    // elements in one access of 16 bytes
constexpr int LOADS = 2;  // heads of a lane that are in flight at once
constexpr int MAX_PAIRS = 64;
constexpr unsigned FULL_MASK = 0xffffffff;
constexpr double TURNS_PER_RADIAN = 0.15915494309189533577;  // 1 / (2 pi)

// An angular frequency in turns per position, as a sum of two floats: 48 bits.
struct Frequency {
    float hi, lo;
};

// Those of all pairs of a head.
struct Frequencies {
    Frequency of[MAX_PAIRS];
};

// Sine and cosine of position * freq turns. The position is an integer that float represents exactly.
__device__ __forceinline__ void turn(float& sine, float& cosine, float position, Frequency freq) {
    // Rounded, never fused: fused with the subtraction below, it would count the lost part twice.
    const float product = __fmul_rn(position, freq.hi);
    const float lost = fmaf(position, freq.hi, -product);
    // The difference is exact. The small parts are added to the fraction, at most 1/2, and not to the whole product.
    const float turns = product - rintf(product) + fmaf(position, freq.lo, lost);
    sincospif(2.0f * turns, &sine, &cosine);
}

// The VEC elements of a vector as floats: a bf16 is the upper half of a float.
__device__ __forceinline__ void unpack(float (&floats)[VEC], const uint4& vector) {
    const uint32_t words[VEC / 2] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i) {
        floats[2 * i] = __uint_as_float(words[i] << 16);
        floats[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000);
    }
}

// VEC floats as a vector, each rounded to bf16.
__device__ __forceinline__ uint4 pack(const float (&floats)[VEC]) {
    alignas(uint4) __nv_bfloat162 pairs[VEC / 2];
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i) pairs[i] = __floats2bfloat162_rn(floats[2 * i], floats[2 * i + 1]);
    return *reinterpret_cast<const uint4*>(pairs);
}

// The caches are written, never read. All lanes of a warp take every iteration: those without a head shuffle, too.
template <int D>
__global__ void __launch_bounds__(THREADS) qkv_rope_cache_bf16_kernel(
    const __nv_bfloat16* __restrict__ qkv, const __nv_bfloat16* __restrict__ qw, const __nv_bfloat16* __restrict__ kw,
    const int* __restrict__ pos, const int* __restrict__ slot, __nv_bfloat16* __restrict__ k_cache,
    __nv_bfloat16* __restrict__ v_cache, __nv_bfloat16* __restrict__ q_out, int T, int Hk, float eps,
    const __grid_constant__ Frequencies frequencies) {
    constexpr int LANES = D / (2 * VEC);      // of a head
    constexpr int HEADS = WARP_SIZE / LANES;  // of a warp, at a time
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int64_t token = blockIdx.x * WARPS + threadIdx.x / WARP_SIZE;
    if (token >= T) return;                 // the whole warp
    const int col = lane_id % LANES * VEC;  // this lane owns col..col+VEC-1 of its heads, and the same D / 2 later
    const int keys = GROUP * Hk;            // the first head that is a key
    const int values = keys + Hk;           // the first that is a value
    const int heads = values + Hk;
    const int64_t cache_row = slot[token];  // or -1
    float sine[VEC] = {};
    float cosine[VEC] = {};
    // TODO(1): The pairs of this lane's columns turn by the same angles in all heads. Compute their sines and cosines.
    //   (~3 lines)
    // END TODO(1)
    for (int begin = 0; begin < heads; begin += LOADS * HEADS) {
        uint4 low_rmem[LOADS] = {};
        uint4 high_rmem[LOADS] = {};
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int head = begin + i * HEADS + lane_id / LANES;
            const __nv_bfloat16* from = qkv + (token * heads + head) * D + col;
            if (head < heads) {
                low_rmem[i] = *reinterpret_cast<const uint4*>(from);
                high_rmem[i] = *reinterpret_cast<const uint4*>(from + D / 2);
            }
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int head = begin + i * HEADS + lane_id / LANES;
            float low[VEC], high[VEC];
            unpack(low, low_rmem[i]);
            unpack(high, high_rmem[i]);
            float scale = 0.0f;
            // TODO(2): Compute 1 / sqrt(mean of the head's squares + eps) in each of the head's lanes. Which lanes must
            //   call a shuffle? (~6 lines)
            // END TODO(2)
            // TODO(3): Normalise a query or a key in float, multiply by its weights, and rotate its pairs (j, j + D /
            //   2). Round once, to low_rmem and high_rmem. A value stays as it is. (~14 lines)
            // END TODO(3)
            __nv_bfloat16* to = nullptr;  // where this head goes, if anywhere
            // TODO(4): Find the place of the head in q_out, or in the token's row of a cache, if it has one. (~5 lines)
            // END TODO(4)
            if (to != nullptr) {
                *reinterpret_cast<uint4*>(to + col) = low_rmem[i];
                *reinterpret_cast<uint4*>(to + col + D / 2) = high_rmem[i];
            }
        }
    }
}

KATA_EXPORT void qkv_rope_cache_bf16(
    const __nv_bfloat16* qkv, const __nv_bfloat16* qw, const __nv_bfloat16* kw, const int* pos, const int* slot,
    __nv_bfloat16* k_cache, __nv_bfloat16* v_cache, __nv_bfloat16* q_out, int T, int Hk, int D, int S, float eps,
    float theta, cudaStream_t stream) {
    // A table of the host, in double precision: theta^(-2i / D) radians per position, for all pairs i of a head.
    Frequencies frequencies = {};
    for (int pair = 0; pair < D / 2; ++pair) {
        const double turns = std::pow(static_cast<double>(theta), -2.0 * pair / D) * TURNS_PER_RADIAN;
        const auto hi = static_cast<float>(turns);
        frequencies.of[pair] = {hi, static_cast<float>(turns - hi)};
    }
    const auto kernel = D == 64 ? qkv_rope_cache_bf16_kernel<64> : qkv_rope_cache_bf16_kernel<128>;
    const int blocks = (T - 1) / WARPS + 1;
    kernel<<<blocks, THREADS, 0, stream>>>(qkv, qw, kw, pos, slot, k_cache, v_cache, q_out, T, Hk, eps, frequencies);
}
