// sample_top_p_f32: token[row] = a column drawn from softmax(x / T), of the likeliest columns that together have at
// least the probability top_p; count[row] = how many these are
//
// Shapes     x: [rows, V] f32, row-major, contiguous, 16-byte aligned base, T, top_p, u: [rows] f32, count, token:
//            [rows] i32, any rows, V >= 1, T > 0, 0 < top_p <= 1, 0 <= u < 1. No nan and no +inf in x, a finite logit
//            in each row; -inf is never kept
// Rule       column j is kept if p[j] >= t, t the largest value for which the kept p sum to at least top_p; so columns
//            that equal the least are all kept. top_p = 1 keeps every finite logit. token = the first kept column at
//            which the running sum of p over the kept columns exceeds u times their whole sum
// Technique  one block per row, in segments; t is searched between two bounds: a sweep sums what seven pivots between
//            them keep, and the bounds close in until one element, or equal ones, are left between them
// New        over sample_min_p_f32: the threshold depends on the sum above it, so it must be searched
// Bound      memory bandwidth: one read, and more of the segments that reach the lower bound
#include "kata.cuh"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

constexpr int THREADS = 512;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int VEC = 4;                  // consecutive columns of a lane
constexpr int CHUNK = WARP_SIZE * VEC;  // consecutive columns of a warp
constexpr int SEGMENTS = THREADS;       // of a row, one per thread in the scan; each is some chunks of one warp
constexpr int PIVOTS = 7;               // of a sweep: three bits of the threshold
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp scans the sums of all warps");

// A number that is larger for a larger value, and the same for 0 and -0. Never 0.
__device__ __forceinline__ uint32_t rank_of(float value) {
    const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 + 0 is 0
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000;
}

// The value of a rank.
__device__ __forceinline__ float value_at(uint32_t rank) {
    return __uint_as_float(rank >> 31 != 0 ? rank & 0x7fffffff : ~rank);
}

// The maximum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_max(float value) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(FULL_MASK, value, offset));
    return value;
}

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

__device__ __forceinline__ int warp_reduce_sum(int sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// Lane i gets the sum over lanes 0..i. All 32 lanes must call it together.
__device__ __forceinline__ float warp_scan(float sum) {
    const int lane_id = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int offset = 1; offset < WARP_SIZE; offset *= 2) {
        const float below = __shfl_up_sync(FULL_MASK, sum, offset);
        if (lane_id >= offset) sum += below;
    }
    return sum;
}

// What a row keeps, and the weights of what it keeps.
struct Filter {
    float top;    // the row's maximum
    float least;  // what a kept logit has at least
    float scale;  // 1 / T
};

// exp((value - max) / T), in (0, 1]; 0 where the column is not kept.
__device__ __forceinline__ float weight_of(float value, Filter filter) {
    return value >= filter.least ? __expf((value - filter.top) * filter.scale) : 0.0f;
}

// The lane's four columns of a chunk, from `col` on; -inf past the row. Pack is what one access moves. Its elements
// divide V: every row starts at a multiple of its size.
template <typename Pack>
__device__ __forceinline__ void load(float (&values)[VEC], const float* __restrict__ x_row, int64_t col, int V) {
    constexpr int PACK = sizeof(Pack) / sizeof(float);
#pragma unroll
    for (int j = 0; j < VEC; j += PACK) {
#pragma unroll
        for (int i = 0; i < PACK; ++i) values[j + i] = -INFINITY;
        if (col + j < V) *reinterpret_cast<Pack*>(&values[j]) = *reinterpret_cast<const Pack*>(x_row + col + j);
    }
}

// What a threshold keeps of a row: the sum of the weights, and how many.
struct Kept {
    float sum;
    int count;
};

template <typename Pack>
__global__ void __launch_bounds__(THREADS) sample_top_p_f32_kernel(
    const float* __restrict__ x, const float* __restrict__ T, const float* __restrict__ top_p,
    const float* __restrict__ u, int* __restrict__ count, int* __restrict__ token, int V, int chunks) {
    __shared__ float maxima_smem[SEGMENTS];
    __shared__ float sums_smem[SEGMENTS];
    __shared__ float warps_smem[WARPS];
    __shared__ Kept parts_smem[WARPS][PIVOTS];
    __shared__ Kept kept_smem[PIVOTS];
    __shared__ int count_smem;
    __shared__ float total_smem;
    __shared__ int last_smem, segment_smem;
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    const int row = blockIdx.x;
    const float* x_row = x + static_cast<int64_t>(row) * V;
    const int64_t length = static_cast<int64_t>(chunks) * CHUNK;  // of a segment
    Filter filter = {0.0f, -FLT_MAX, 1.0f / T[row]};
    alignas(Pack) float values[VEC];
    // TODO(1): Each warp takes segments warp_id, warp_id + WARPS, ... and leaves each segment's maximum, and the sum of
    //   exp((x - maximum) / T) over the segment, 0 where it has no finite logit. One read is enough. (~23 lines)
    for (int segment = warp_id; segment < SEGMENTS; segment += WARPS) {
        const int64_t first = segment * length + lane_id * VEC;
        float top = -FLT_MAX, sum = 0.0f;  // of the lane's columns so far
        for (int c = 0; c < chunks; ++c) {
            load<Pack>(values, x_row, first + c * CHUNK, V);
            float higher = top;
#pragma unroll
            for (int j = 0; j < VEC; ++j) higher = fmaxf(higher, values[j]);
            sum *= __expf((top - higher) * filter.scale);
            top = higher;
#pragma unroll
            for (int j = 0; j < VEC; ++j) sum += __expf((values[j] - top) * filter.scale);
        }
        const float highest = warp_reduce_max(top);
        sum = warp_reduce_sum(sum * __expf((top - highest) * filter.scale));
        if (lane_id == 0) {
            maxima_smem[segment] = highest;
            sums_smem[segment] = sum;
        }
    }
    __syncthreads();  // every thread reads the maximum and the sum of a segment
    // END TODO(1)
    // The row's maximum, and then the sum of exp((x - maximum) / T) over the row.
    float of_warp = warp_reduce_max(maxima_smem[tid]);
    if (lane_id == 0) warps_smem[warp_id] = of_warp;
    if (tid == 0) last_smem = 0;
    if (tid == 0) segment_smem = SEGMENTS;
    if (tid == 0) count_smem = 0;
    __syncthreads();  // every warp reads what all warps wrote
    filter.top = warp_reduce_max(lane_id < WARPS ? warps_smem[lane_id] : -FLT_MAX);
    __syncthreads();  // the maxima are read, and sums take their place
    of_warp = warp_reduce_sum(sums_smem[tid] * __expf((maxima_smem[tid] - filter.top) * filter.scale));
    if (lane_id == 0) warps_smem[warp_id] = of_warp;
    __syncthreads();  // every warp reads what all warps wrote
    const float whole = warp_reduce_sum(lane_id < WARPS ? warps_smem[lane_id] : 0.0f);
    const float wanted = top_p[row] * whole;  // the least that the kept weights sum to
    // The threshold is a rank: at least low, and below high. What low keeps is enough, and what high keeps is not.
    uint32_t low = rank_of(-FLT_MAX);
    uint32_t high = rank_of(filter.top) + 1;
    if (top_p[row] < 1.0f) {
        // TODO(2): Raise low to a bound that needs no read. V columns with weights below (1 - top_p) whole / V do not
        //   have the sum (1 - top_p) whole, so what is left without them is enough. Half of it is safe from rounding.
        //   (~2 lines)
        const float least = 0.5f * (1.0f - top_p[row]) * whole / static_cast<float>(V);
        low = max(low, rank_of(filter.top + T[row] * logf(least)));
        // END TODO(2)
        int low_count = V, high_count = 0;  // at most so many are kept by low, and by high
        // With one element between the bounds, or equal ones, every threshold there keeps the same.
        while (high - low > 1 && low_count - high_count > 1) {
            float pivots[PIVOTS];  // divide the ranks between the bounds evenly
            Kept kept[PIVOTS];
#pragma unroll
            for (int i = 0; i < PIVOTS; ++i) {
                pivots[i] =
                    value_at(low + static_cast<uint32_t>(static_cast<uint64_t>(high - low) * (i + 1) / (PIVOTS + 1)));
                kept[i] = {0.0f, 0};
            }
            const float lowest = value_at(low);
            // TODO(3): Let kept[i] be what pivot i keeps of this lane's columns. A segment whose maximum is below
            //   lowest has no part in it, and is not read. (~16 lines)
            for (int segment = SEGMENTS - WARPS + warp_id; segment >= 0; segment -= WARPS) {
                if (maxima_smem[segment] < lowest) continue;  // the same in all lanes
                const int64_t first = segment * length + lane_id * VEC;
                for (int c = 0; c < chunks; ++c) {
                    load<Pack>(values, x_row, first + c * CHUNK, V);
#pragma unroll
                    for (int j = 0; j < VEC; ++j) {
                        const float weight = __expf((values[j] - filter.top) * filter.scale);
#pragma unroll
                        for (int i = 0; i < PIVOTS; ++i) {
                            if (values[j] < pivots[i]) continue;
                            kept[i].sum += weight;
                            ++kept[i].count;
                        }
                    }
                }
            }
            // END TODO(3)
            // Sums over the block, in a fixed order.
#pragma unroll
            for (int i = 0; i < PIVOTS; ++i) {
                kept[i] = {warp_reduce_sum(kept[i].sum), warp_reduce_sum(kept[i].count)};
                if (lane_id == 0) parts_smem[warp_id][i] = kept[i];
            }
            __syncthreads();  // threads read what all warps wrote
            if (tid < PIVOTS) {
                Kept all = {0.0f, 0};
                for (int w = 0; w < WARPS; ++w)
                    all = {all.sum + parts_smem[w][tid].sum, all.count + parts_smem[w][tid].count};
                kept_smem[tid] = all;
            }
            __syncthreads();  // every thread reads what the pivots keep
            // TODO(4): Move the bounds to two neighbouring pivots, of which the lower one keeps enough and the higher
            //   one does not. (~13 lines)
            const uint32_t from = low, width = high - low;
            for (int i = 0; i < PIVOTS; ++i) {
                const uint32_t pivot =
                    from + static_cast<uint32_t>(static_cast<uint64_t>(width) * (i + 1) / (PIVOTS + 1));
                if (kept_smem[i].sum >= wanted) {
                    low = pivot;
                    low_count = kept_smem[i].count;
                } else {
                    high = pivot;
                    high_count = kept_smem[i].count;
                    break;
                }
            }
            // END TODO(4)
            __syncthreads();  // all have read what the pivots keep, before the next sweep
        }
    }
    filter.least = value_at(low);
    // What is kept is drawn from as in sample_min_p_f32. Leave the sum of each segment's kept weights, and count them.
    for (int segment = SEGMENTS - WARPS + warp_id; segment >= 0; segment -= WARPS) {
        const int64_t first = segment * length + lane_id * VEC;
        float sum = 0.0f;
        int kept = 0;
        if (maxima_smem[segment] >= filter.least) {  // the same in all lanes
            for (int c = 0; c < chunks; ++c) {
                load<Pack>(values, x_row, first + c * CHUNK, V);
#pragma unroll
                for (int j = 0; j < VEC; ++j) {
                    sum += weight_of(values[j], filter);
                    kept += values[j] >= filter.least ? 1 : 0;
                }
            }
            sum = warp_reduce_sum(sum);
            kept = warp_reduce_sum(kept);
        }
        if (lane_id == 0) sums_smem[segment] = sum;
        if (lane_id == 0 && kept > 0) atomicAdd(&count_smem, kept);
    }
    __syncthreads();  // every thread reads the sum of a segment
    if (tid == 0) count[row] = count_smem;
    // A scan over the segments: end is the running sum at the end of segment tid, total that of the last segment with a
    // kept column.
    const float own = sums_smem[tid];
    const float end_in_warp = warp_scan(own);
    if (lane_id == WARP_SIZE - 1) warps_smem[warp_id] = end_in_warp;
    if (own > 0.0f) atomicMax(&last_smem, tid);
    __syncthreads();  // every warp reads what all warps wrote
    const float warp_ends = warp_scan(lane_id < WARPS ? warps_smem[lane_id] : 0.0f);
    const float warp_before = warp_id > 0 ? __shfl_sync(FULL_MASK, warp_ends, warp_id - 1) : 0.0f;
    const float end = warp_before + end_in_warp;
    // Rounding differs from lane to lane: a later end may exceed the last one that has a kept column.
    if (tid == last_smem) total_smem = end;
    __syncthreads();  // every thread compares with the whole sum
    const float total = total_smem;
    const float target = u[row] * total;
    if (own > 0.0f && end > target) atomicMin(&segment_smem, tid);
    __syncthreads();  // every thread reads which segment is the first
    const int segment = segment_smem;
    if (warp_id != segment / WARP_SIZE) return;
    // The sum of all segments before it.
    float before = __shfl_sync(FULL_MASK, end, max(segment % WARP_SIZE - 1, 0));
    if (segment % WARP_SIZE == 0) before = warp_before;
    // The first kept column at which the running sum exceeds target. Rounding may have left the sum below it at the
    // segment's end: then it is the last kept column.
    int last = -1;  // the last kept column of this lane
    for (int c = 0; c < chunks; ++c) {
        const int64_t first = segment * length + c * CHUNK + lane_id * VEC;
        load<Pack>(values, x_row, first, V);
        float ends[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) ends[j] = weight_of(values[j], filter) + (j > 0 ? ends[j - 1] : 0.0f);
        const float lane_end = warp_scan(ends[VEC - 1]);
        const float lane_before = __shfl_up_sync(FULL_MASK, lane_end, 1);
        int found = -1;
#pragma unroll
        for (int j = VEC - 1; j >= 0; --j) {
            if (values[j] < filter.least) continue;
            last = max(last, static_cast<int>(first) + j);
            if (before + (lane_id > 0 ? lane_before : 0.0f) + ends[j] > target) found = static_cast<int>(first) + j;
        }
        const unsigned lanes = __ballot_sync(FULL_MASK, found >= 0);
        if (lanes != 0) {
            if (lane_id == __ffs(lanes) - 1) token[row] = found;
            return;
        }
        before += __shfl_sync(FULL_MASK, lane_end, WARP_SIZE - 1);
    }
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        last = max(last, __shfl_xor_sync(FULL_MASK, last, offset));
    if (lane_id == 0) token[row] = last;
}

KATA_EXPORT void sample_top_p_f32(
    const float* x, const float* T, const float* top_p, const float* u, int* count, int* token, int rows, int V,
    cudaStream_t stream) {
    const int chunks = std::max((V - 1) / (SEGMENTS * CHUNK) + 1, 2);  // of a segment; loads of two are in flight
    // All rows start at a multiple of 16 bytes only where V is a multiple of 4.
    const auto kernel = V % 4 == 0 ? sample_top_p_f32_kernel<float4> : sample_top_p_f32_kernel<float>;
    kernel<<<rows, THREADS, 0, stream>>>(x, T, top_p, u, count, token, V, chunks);
}
