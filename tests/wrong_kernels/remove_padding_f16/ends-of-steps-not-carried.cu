// Wrong: the sum of the first 1024 lengths is missing in all that come after them
// Kata: remove_padding_f16
// Sim: wrong answer
// Gpu: wrong answer
// Says: \b1024\b
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int WARP_SIZE = 32;
constexpr int SCAN_THREADS = 1024;
constexpr int SCAN_WARPS = SCAN_THREADS / WARP_SIZE;
constexpr int THREADS = 256;
constexpr int WARPS = THREADS / WARP_SIZE;  // of a block, each with a row of packed of its own
constexpr int LOADS = 4;                    // vectors of a lane that are on their way at a time
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(SCAN_WARPS == WARP_SIZE, "one warp scans the sums of all warps, one in each lane");

// Lane i gets the sum over lanes 0..i. All 32 lanes must call it together.
__device__ __forceinline__ int warp_scan(int sum) {
    const int lane_id = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int offset = 1; offset < WARP_SIZE; offset *= 2) {
        const int below = __shfl_up_sync(FULL_MASK, sum, offset);
        if (lane_id >= offset) sum += below;
    }
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
        if (lane_id == WARP_SIZE - 1) warp_ends_smem[warp_id] = end;
        __syncthreads();  // the first warp reads what the last lanes of all warps wrote
        if (warp_id == 0) warp_ends_smem[lane_id] = warp_scan(warp_ends_smem[lane_id]);
        __syncthreads();  // all warps read what the first warp wrote
        end += before + (warp_id > 0 ? warp_ends_smem[warp_id - 1] : 0);
        __syncthreads();  // the next step writes where a slow warp may still read
        if (b < batch) ends[b] = end;
    }
}

// Pack is what one access moves. Its VEC elements divide hidden: every row starts at a multiple of its size.
template <typename Pack>
__global__ void __launch_bounds__(THREADS) remove_padding_f16_kernel(
    const half* __restrict__ x, const int* __restrict__ lengths, half* __restrict__ packed,
    const int* __restrict__ ends, int tokens, int batch, int seq, int hidden) {
    const int vectors = hidden / static_cast<int>(sizeof(Pack) / sizeof(half));  // of a row
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP_SIZE;
    if (row >= tokens) return;
    int b = 0;  // the first sequence that ends past row; batch where none does
    for (int high = batch; b < high;) {
        const int middle = b + (high - b) / 2;
        if (ends[middle] > row)
            high = middle;
        else
            b = middle + 1;
    }
    const bool filled = b < batch;
    const int64_t s = filled ? row - (ends[b] - lengths[b]) : 0;  // the token's place in its sequence
    const Pack* from = reinterpret_cast<const Pack*>(x + (static_cast<int64_t>(b) * seq + s) * hidden);
    Pack* to = reinterpret_cast<Pack*>(packed + row * hidden);
    const int given = filled ? vectors : 0;  // of the row that is copied, where there is one
#pragma unroll 1
    for (int first = lane_id; first < vectors; first += LOADS * WARP_SIZE) {
        Pack x_rmem[LOADS] = {};
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            if (first + i * WARP_SIZE < given) x_rmem[i] = from[first + i * WARP_SIZE];
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            if (first + i * WARP_SIZE < vectors) to[first + i * WARP_SIZE] = x_rmem[i];
        }
    }
}

KATA_EXPORT void remove_padding_f16(
    const half* x, const int* lengths, half* packed, int* ends, int tokens, int batch, int seq, int hidden,
    cudaStream_t stream) {
    scan_kernel<<<1, SCAN_THREADS, 0, stream>>>(lengths, ends, batch);
    if (tokens == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (tokens - 1) / WARPS + 1;
    // Only where 8 divides hidden do all rows start at a multiple of 16 bytes.
    const auto kernel = hidden % 8 == 0 ? remove_padding_f16_kernel<uint4> : remove_padding_f16_kernel<half>;
    kernel<<<blocks, THREADS, 0, stream>>>(x, lengths, packed, ends, tokens, batch, seq, hidden);
}
