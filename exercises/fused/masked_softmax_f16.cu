// masked_softmax_f16: y[b, head, query, :] = softmax of scale * x[b, head, query, :] over the keys that the mask shows
//
// Shapes     x, y: [batch, heads, queries, keys] f16, mask: [batch, queries, keys] u8, any byte but 0 shows its key,
//            contiguous, 16-byte aligned bases, any batch, queries >= 0, heads in 1..262140 (blocks along y end at
//            65535), keys in 1..1024
// Technique  one warp per query and four heads, the mask as bits of one register, a row in up to 32 registers
// New        over safe_softmax_f16x8_pack_f32: hidden keys count as -inf, and a query that sees no key gets 0; no
//            shared memory and no barrier, as in safe_softmax_f32x4_warp
// Bound      memory bandwidth
#include "kata.cuh"
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int WARP_SIZE = 32;
constexpr int WARPS = 8;  // per block, each with a query of its own
constexpr int THREADS = WARPS * WARP_SIZE;
constexpr int HEADS = 4;      // heads per warp, in sequence: the mask's row is read once for all of them
constexpr int MAX_HELD = 32;  // elements of a row in a lane's registers, as many as an unsigned has bits
constexpr float LOG2_E = 1.4426950409f;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(MAX_HELD * WARP_SIZE >= 1024, "a warp holds the longest row");

// Warp reductions: the sum or maximum, in every lane. All 32 lanes must call them together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}
__device__ __forceinline__ float warp_reduce_max(float max) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) max = fmaxf(max, __shfl_xor_sync(FULL_MASK, max, offset));
    return max;
}

// Pack is the type of one access to x or y. MaskPack is the same number of elements of the mask. These VEC elements
// divide keys: a row holds only whole vectors.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(half);

// HELD elements of a row per lane: 32 * HELD >= keys.
template <typename Pack, typename MaskPack, int HELD>
__global__ void __launch_bounds__(THREADS) masked_softmax_f16_kernel(
    const half* __restrict__ x, const uint8_t* __restrict__ mask, half* __restrict__ y, int batch, int heads,
    int queries, int keys, float scale) {
    static_assert(sizeof(MaskPack) == VEC<Pack>, "both packs have the same number of elements");
    static_assert(HELD <= MAX_HELD, "an unsigned has a bit for each");
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int64_t pair = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP_SIZE;  // of batch and query
    if (pair >= static_cast<int64_t>(batch) * queries) return;  // the whole warp: no barrier waits for it
    const int first_head = blockIdx.y * HEADS;
    const int64_t first_row = (pair / queries * heads + first_head) * queries + pair % queries;
    const int64_t next_head = static_cast<int64_t>(queries) * keys;  // from a row to the same query in the next head
    const half* x_row = x + first_row * keys;
    half* y_row = y + first_row * keys;
    MaskPack mask_rmem[HELD / VEC<Pack>] = {};
    const float factor = scale * LOG2_E;  // the hardware computes exponentials of base 2
    unsigned shown = 0;                   // bit i: element i of this lane exists, and the mask shows it
    // TODO(1): Load the mask's row, VEC elements by one access of type MaskPack, with neighbouring lanes on
    //   neighbouring vectors, and set the bits of shown. An element past the row is not shown. (~9 lines)
    // END TODO(1)
#pragma unroll 1  // hold one head at a time in registers
    for (int head = first_head; head < min(first_head + HEADS, heads); ++head) {
        Pack x_rmem[HELD / VEC<Pack>] = {};
        half* x_half = reinterpret_cast<half*>(x_rmem);
        float e_rmem[HELD];
        float max = -INFINITY;
        // TODO(2): global -> registers: the row of x, VEC elements by one access of type Pack. Multiply by factor.
        //   Elements that are not shown become -inf, even if they hold nan. Find the row's maximum. (~10 lines)
        // END TODO(2)
        float sum = 0.0f;
        float share = 0.0f;
        // TODO(3): Turn the registers into exponentials, and find the factor to multiply each by. If a query sees no
        //   key, its maximum is -inf, and its row must become 0. A nan must make its row nan. (~8 lines)
        // END TODO(3)
        // TODO(4): registers -> global: VEC elements by one access of type Pack. Store nothing past the row. (~7 lines)
        // END TODO(4)
        x_row += next_head;
        y_row += next_head;
    }
}

KATA_EXPORT void masked_softmax_f16(
    const half* x, const uint8_t* mask, half* y, int batch, int heads, int queries, int keys, float scale,
    cudaStream_t stream) {
    if (batch == 0 || queries == 0) return;  // a grid of no blocks is an invalid launch
    // All rows start at a multiple of 16 bytes only if 8 divides keys. A lane holds as few elements as possible.
    auto kernel = masked_softmax_f16_kernel<half, uint8_t, MAX_HELD>;
    if (keys % 8 == 0) {
        kernel = keys <= 256   ? masked_softmax_f16_kernel<uint4, uint2, 8>
                 : keys <= 512 ? masked_softmax_f16_kernel<uint4, uint2, 16>
                               : masked_softmax_f16_kernel<uint4, uint2, MAX_HELD>;
    }
    const int64_t pairs = static_cast<int64_t>(batch) * queries;
    const dim3 blocks(static_cast<unsigned>((pairs - 1) / WARPS + 1), (heads - 1) / HEADS + 1);
    kernel<<<blocks, THREADS, 0, stream>>>(x, mask, y, batch, heads, queries, keys, scale);
}
