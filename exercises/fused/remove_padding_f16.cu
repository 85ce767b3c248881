// remove_padding_f16: packed = the first lengths[b] rows of each sequence b of x, one sequence after the other
//
// Shapes     x: [batch, seq, hidden] f16, lengths: [batch] i32, each in 0..seq, packed: [tokens, hidden] f16, ends:
//            [batch] i32, ends[b] = lengths[0] + ... + lengths[b] < 2^31; contiguous, 16-byte aligned bases, any
//            tokens >= 0, batch, seq, hidden >= 1. Rows of packed that no token fills become 0; tokens beyond the last
//            row are dropped
// Technique  one block for the prefix sum of the lengths; then one warp per row of packed, which looks up its token
// New        over embedding_f16x8_pack: a scan and a binary search compute the indices
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int WARP_SIZE = 32;
constexpr int SCAN_THREADS = 1024;
constexpr int SCAN_WARPS = SCAN_THREADS / WARP_SIZE;
constexpr int THREADS = 256;
constexpr int WARPS = THREADS / WARP_SIZE;  // per block, each with a row of packed of its own
constexpr int LOADS = 4;                    // vectors of a lane in flight at a time
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(SCAN_WARPS == WARP_SIZE, "one warp scans the sums of all warps, one in each lane");

// Lane i gets the sum over lanes 0..i. All 32 lanes must call it together.
__device__ __forceinline__ int warp_scan(int sum) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    // TODO(1): In five steps, each twice as far as the one before, add the value of a lower lane. The lowest lanes have
    //   no such lane. (~5 lines)
    // END TODO(1)
    return sum;
}

// One block: ends[b] = lengths[0] + ... + lengths[b]
__global__ void __launch_bounds__(SCAN_THREADS)
    scan_kernel(const int* __restrict__ lengths, int* __restrict__ ends, int batch) {
    __shared__ int warp_ends_smem[SCAN_WARPS];
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    int before = 0;  // the sum of all lengths of earlier steps
    for (int64_t first = 0; first < batch; first += SCAN_THREADS) {
        const int64_t b = first + tid;
        int end = warp_scan(b < batch ? lengths[b] : 0);
        // TODO(2): Make end the sum over all lengths up to this thread's own, and add this step's sum to before. One
        //   warp must scan the sums of all warps for that, and no warp may be too early or too late. (~7 lines)
        // END TODO(2)
        if (b < batch) ends[b] = end;
    }
}

// Pack is the type of one access. Its VEC elements divide hidden: every row starts at a multiple of its size.
template <typename Pack>
__global__ void __launch_bounds__(THREADS) remove_padding_f16_kernel(
    const half* __restrict__ x, const int* __restrict__ lengths, half* __restrict__ packed,
    const int* __restrict__ ends, int tokens, int batch, int seq, int hidden) {
    const int vectors = hidden / static_cast<int>(sizeof(Pack) / sizeof(half));  // of a row
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP_SIZE;
    if (row >= tokens) return;
    int b = 0;  // the first sequence that ends past row; batch if there is no such sequence
    // TODO(3): Find it by bisection. It must never be a sequence without tokens. (~7 lines)
    // END TODO(3)
    const bool filled = b < batch;
    const int64_t s = filled ? row - (ends[b] - lengths[b]) : 0;  // the token's place in its sequence
    const Pack* from = reinterpret_cast<const Pack*>(x + (static_cast<int64_t>(b) * seq + s) * hidden);
    Pack* to = reinterpret_cast<Pack*>(packed + row * hidden);
    const int given = filled ? vectors : 0;  // of the row that is copied, if it exists
#pragma unroll 1
    for (int first = lane_id; first < vectors; first += LOADS * WARP_SIZE) {
        Pack x_rmem[LOADS] = {};
        // TODO(4): Copy vectors first, first + WARP_SIZE, ... of the row, up to LOADS of them. All loads come before
        //   the first store. A row that no token fills becomes 0, and nothing is read for it. (~8 lines)
        // END TODO(4)
    }
}

KATA_EXPORT void remove_padding_f16(
    const half* x, const int* lengths, half* packed, int* ends, int tokens, int batch, int seq, int hidden,
    cudaStream_t stream) {
    scan_kernel<<<1, SCAN_THREADS, 0, stream>>>(lengths, ends, batch);
    if (tokens == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (tokens - 1) / WARPS + 1;
    // All rows start at a multiple of 16 bytes only if 8 divides hidden.
    const auto kernel = hidden % 8 == 0 ? remove_padding_f16_kernel<uint4> : remove_padding_f16_kernel<half>;
    kernel<<<blocks, THREADS, 0, stream>>>(x, lengths, packed, ends, tokens, batch, seq, hidden);
}
