// topk_radix_select_f32: kth[row] = the k-th largest value of the row, idx[row] = the columns of the k largest, in
// rising order; of values that equal the k-th, the lowest columns
//
// Shapes     x: [rows, cols] f32, row-major, contiguous, 16-byte aligned base, kth: [rows] f32, idx: [rows, k] i32, any
//            rows, cols >= 1, k in 1..2048; where cols < k, kth is -inf and the places past cols hold -1. No nan in x
// Technique  one block per row collects the elements that exceed the k-th so far; when its list is full, four
//            histograms of 8 bits find the k-th of the list, and a compaction keeps k
// New        over topk_warp_f32: the list is not sorted, so it may be long; digits find the k-th, not comparisons
// Bound      memory bandwidth
#include "kata.cuh"
#include <cmath>
#include <cstdint>

constexpr int THREADS = 512;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int ITEMS = 12;                    // elements per thread and tile
constexpr int PER_WARP = WARP_SIZE * ITEMS;  // consecutive elements of a warp, 32 at a time
constexpr int TILE = WARPS * PER_WARP;       // elements of a block and step
constexpr int MAX_K = 2048;
constexpr int CAPACITY = MAX_K + TILE;  // of the list: k elements and a whole tile
constexpr int DIGIT_BITS = 8;
constexpr int BINS = 1 << DIGIT_BITS;
constexpr int DIGITS = 32 / DIGIT_BITS;
constexpr int BINS_PER_LANE = BINS / WARP_SIZE;
constexpr int LIST_PER_WARP = CAPACITY / WARPS;  // consecutive elements of the list that a warp compacts
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "ballots name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp scans the counts of all warps");
static_assert(LIST_PER_WARP * WARPS == CAPACITY && LIST_PER_WARP % WARP_SIZE == 0, "warps share the whole list");

// An element of the row: what is compared, and where it is.
struct Element {
    uint32_t rank;
    int col;
};

struct Shared {
    Element list[CAPACITY];  // in rising order of columns
    Element kept[MAX_K];
    int histograms[DIGITS][BINS];
    int counts[3][WARPS];  // two for tiles in turn, one for compactions
};

// A number that is larger for a larger value, and the same for 0 and -0. Never 0, which is the rank of no element.
__device__ __forceinline__ uint32_t rank_of(float value) {
    const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 + 0 is 0
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000;
}

// The value of a rank; -inf where there is no element.
__device__ __forceinline__ float value_of(uint32_t rank) {
    if (rank == 0) return -INFINITY;
    return __uint_as_float(rank >> 31 != 0 ? rank & 0x7fffffff : ~rank);
}

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

// A bin of a histogram, and the sum of all bins above it.
struct Bin {
    int digit;
    int above;
};

// The bin of the element that has exactly wanted - 1 elements before it, if they are sorted to fall. The histogram
// counts at least `wanted` elements. All 32 lanes must call it together.
__device__ __forceinline__ Bin find_bin(const int* histogram, int wanted) {
    Bin bin = {0, 0};
    // TODO(1): The bin is the highest that, with all bins above it, has at least `wanted` elements. Lane 0 has the
    //   highest BINS_PER_LANE bins, lane 31 the lowest. (~10 lines)
    // END TODO(1)
    return bin;
}

// The sum over the warps below this one, and over all warps, of what each gives in `count`. A barrier is within:
// all threads of the block must call it together.
__device__ __forceinline__ int2 scan_warps(int count, int* counts) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    if (lane_id == 0) counts[warp_id] = count;
    __syncthreads();  // every warp reads what all warps wrote
    const int ends = warp_scan(lane_id < WARPS ? counts[lane_id] : 0);
    return {__shfl_sync(FULL_MASK, ends, warp_id) - count, __shfl_sync(FULL_MASK, ends, WARPS - 1)};
}

// global -> registers: the lane's elements of a tile. The first is at x_lane, and the row has `left` more columns.
// Elements past the row are nan: no comparison with them is true.
__device__ __forceinline__ void load_tile(const float* __restrict__ x_lane, int left, float (&x_rmem)[ITEMS]) {
    if (left > (ITEMS - 1) * WARP_SIZE) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) x_rmem[i] = x_lane[i * WARP_SIZE];
    } else {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) x_rmem[i] = i * WARP_SIZE < left ? x_lane[i * WARP_SIZE] : NAN;
    }
}

// Keeps the k largest of the list's `size` elements, at least k, in their order; of those that equal the k-th the first
// ones. Returns the k-th's rank. All threads of the block must call it together.
__device__ uint32_t keep_k(Shared& smem, int size, int k) {
    const int tid = threadIdx.x;
    const int lane_id = tid % WARP_SIZE;
    for (int i = tid; i < DIGITS * BINS; i += THREADS) smem.histograms[0][i] = 0;
    __syncthreads();     // bins that others clear, elements that others appended
    uint32_t kth = 0;    // the k-th's digits so far
    uint32_t fixed = 0;  // the bits of these
    int wanted = k;      // the k-th is the wanted-th largest of the elements with these digits
#pragma unroll 1
    for (int digit = 0; digit < DIGITS; ++digit) {
        const int shift = 32 - (digit + 1) * DIGIT_BITS;
        int* histogram = smem.histograms[digit];
        // TODO(2): Count this digit of all elements that share the k-th's digits so far, and take the k-th's.
        //   (~9 lines)
        // END TODO(2)
    }
    const int first = tid / WARP_SIZE * LIST_PER_WARP + lane_id;
    const int end = min(size, first - lane_id + LIST_PER_WARP);  // of this warp's part of the list
    const unsigned lanes_below = (1u << lane_id) - 1;
    // TODO(3): The elements that exceed the k-th, and the first `wanted` that equal it, go to smem.kept in the order of
    //   the list. Each warp has LIST_PER_WARP of them. (~20 lines)
    // END TODO(3)
    __syncthreads();  // all have read the list, and kept is complete
    for (int i = tid; i < k; i += THREADS) smem.list[i] = smem.kept[i];
    __syncthreads();  // threads read what others kept
    return kth;
}

__global__ void __launch_bounds__(THREADS, 2) topk_radix_select_f32_kernel(
    const float* __restrict__ x, float* __restrict__ kth, int* __restrict__ idx, int cols, int k) {
    extern __shared__ __align__(16) unsigned char memory_smem[];
    Shared& smem = *reinterpret_cast<Shared*>(memory_smem);
    const int tid = threadIdx.x;
    const int lane_id = tid % WARP_SIZE;
    const int lane_first = tid / WARP_SIZE * PER_WARP + lane_id;  // this lane's first column in a tile
    const unsigned lanes_below = (1u << lane_id) - 1;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float x_rmem[ITEMS];
    load_tile(x_row + lane_first, cols - lane_first, x_rmem);
    float least = -INFINITY;  // what an element must have at least: the next value above the k-th so far
    int size = 0;             // of the list
    int turn = 0;
    for (int64_t begin = 0; begin < cols; begin += TILE) {
        float tile_rmem[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) tile_rmem[i] = x_rmem[i];
        // The next tile is loaded while this one is compared.
        const int left = static_cast<int>(cols - begin) - lane_first;  // columns from this lane's first on
        load_tile(x_row + begin + TILE + lane_first, left - TILE, x_rmem);
        // TODO(4): Append the elements of the tile that are at least `least` to the list, in the order of columns. If
        //   they are more than fit, keep the k largest of the list and look again. The next value above the k-th is
        //   that of the next rank. Few elements are appended, and only these need a rank. (~23 lines)
        // END TODO(4)
    }
    uint32_t kth_rank = 0;  // fewer than k elements have no k-th
    if (size >= k) {
        kth_rank = keep_k(smem, size, k);
        size = k;
    } else {
        __syncthreads();  // threads store columns that others appended
    }
    if (tid == 0) kth[blockIdx.x] = value_of(kth_rank);
    for (int i = tid; i < k; i += THREADS)
        idx[static_cast<int64_t>(blockIdx.x) * k + i] = i < size ? smem.list[i].col : -1;
}

KATA_EXPORT void topk_radix_select_f32(
    const float* x, float* kth, int* idx, int rows, int cols, int k, cudaStream_t stream) {
    const int smem_bytes = sizeof(Shared);  // more than a block gets without asking
    cudaFuncSetAttribute(topk_radix_select_f32_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    topk_radix_select_f32_kernel<<<rows, THREADS, smem_bytes, stream>>>(x, kth, idx, cols, k);
}
