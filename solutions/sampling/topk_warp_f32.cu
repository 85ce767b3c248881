// topk_warp_f32: the k largest values of each row, falling, and their columns; of equal values the lower column first
//
// Shapes     x: [rows, cols] f32, row-major, contiguous, 16-byte aligned base, values: [rows, k] f32, idx: [rows, k]
//            i32, any rows, cols >= 1, k in 1..32; where cols < k, places past cols hold -inf and -1. No nan in x
// Technique  one warp per row; lane i keeps the i-th best so far; a ballot finds elements that beat the k-th, and each
//            of them is inserted by a shuffle and a comparison
// New        over argmax_row_f32: a sorted list across the lanes, and work that depends on the data
// Bound      memory bandwidth for values in random order; shuffles where most elements are inserted
#include "kata.cuh"
#include <cmath>
#include <cstdint>

constexpr int THREADS = 128;
constexpr int LOADS = 8;  // per lane, in flight at once
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;  // per block, each with a row of its own
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");

// A number that is larger for a larger value, and the same for 0 and -0. Never 0, which is the rank of an empty place.
__device__ __forceinline__ uint32_t rank_of(float value) {
    const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 + 0 is 0
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000;
}

// The value of a rank; -inf for an empty place.
__device__ __forceinline__ float value_of(uint32_t rank) {
    if (rank == 0) return -INFINITY;
    return __uint_as_float(rank >> 31 != 0 ? rank & 0x7fffffff : ~rank);
}

// A place of the list.
struct Place {
    uint32_t rank;
    int col;
};

// Lane i holds place i of the list, which falls in rank. Puts an element behind all of at least its rank; what was in
// the last place is dropped. All 32 lanes must call it together, with the same element.
__device__ __forceinline__ void insert(Place& place, uint32_t rank, int col) {
    // TODO(1): A lane keeps a place of at least the element's rank. All others move up by one lane, and the first of
    //   them gets the element. (~5 lines)
    const uint32_t rank_below = __shfl_up_sync(FULL_MASK, place.rank, 1);
    const int col_below = __shfl_up_sync(FULL_MASK, place.col, 1);
    const bool below_moves = threadIdx.x % WARP_SIZE > 0 && rank_below < rank;
    if (place.rank < rank) place = below_moves ? Place{rank_below, col_below} : Place{rank, col};
    // END TODO(1)
}

__global__ void __launch_bounds__(THREADS) topk_warp_f32_kernel(
    const float* __restrict__ x, float* __restrict__ values, int* __restrict__ idx, int rows, int cols, int k) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP_SIZE;
    // A warp without a row returns as a whole. The kernel has no barrier, so no warp waits for it.
    if (row >= rows) return;
    const float* x_row = x + row * cols;
    Place place = {0, -1};
    uint32_t least = 0;  // the rank of place k - 1: what an element must exceed
    for (int64_t begin = 0; begin < cols; begin += LOADS * WARP_SIZE) {
        uint32_t ranks[LOADS];
        const float* x_lane = x_row + begin + lane_id;
        const int left = static_cast<int>(cols - begin) - lane_id;  // columns from this lane's first on
        if (left > (LOADS - 1) * WARP_SIZE) {
#pragma unroll
            for (int i = 0; i < LOADS; ++i) ranks[i] = rank_of(x_lane[i * WARP_SIZE]);
        } else {
#pragma unroll
            for (int i = 0; i < LOADS; ++i) ranks[i] = i * WARP_SIZE < left ? rank_of(x_lane[i * WARP_SIZE]) : 0;
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            // TODO(2): Insert the elements of this batch of 32 that exceed least, the lowest column first. Each of
            //   them may raise least, and then fewer of the others exceed it. (~8 lines)
            unsigned better = __ballot_sync(FULL_MASK, ranks[i] > least);
            while (better != 0) {
                const int from = __ffs(better) - 1;
                insert(place, __shfl_sync(FULL_MASK, ranks[i], from), static_cast<int>(begin) + i * WARP_SIZE + from);
                least = __shfl_sync(FULL_MASK, place.rank, k - 1);
                // Lanes up to from have had their turn.
                better = __ballot_sync(FULL_MASK, lane_id > from && ranks[i] > least);
            }
            // END TODO(2)
        }
    }
    // TODO(3): Store the first k places of the list. (~4 lines)
    if (lane_id < k) {
        values[row * k + lane_id] = value_of(place.rank);
        idx[row * k + lane_id] = place.col;
    }
    // END TODO(3)
}

KATA_EXPORT void topk_warp_f32(
    const float* x, float* values, int* idx, int rows, int cols, int k, cudaStream_t stream) {
    const int blocks = (rows - 1) / WARPS + 1;
    topk_warp_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, values, idx, rows, cols, k);
}
