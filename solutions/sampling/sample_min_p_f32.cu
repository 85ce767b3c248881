// sample_min_p_f32: token[row] = a column drawn from softmax(x / T), of the columns that are at least min_p times as
// likely as the likeliest
//
// Shapes     x: [rows, V] f32, row-major, contiguous, 16-byte aligned base, T, min_p, u: [rows] f32, token: [rows] i32,
//            any rows, V >= 1, T > 0, 0 < min_p <= 1, 0 <= u < 1. No nan and no +inf in x, a finite logit in each row
// Rule       column j is kept if x[j] / T >= max / T + log(min_p); token = the first kept column at which the running
//            sum of exp(x / T) over the kept columns exceeds u times their whole sum
// Technique  one block per row, in segments: the first pass leaves each segment's maximum, the second the sum of its
//            kept weights; a scan of these finds the segment with the token, and one warp finds the column
// New        over sample_gumbel_f32: a filter by a threshold, and one random number per row: sums in order of columns
// Bound      memory bandwidth: one read, and a second of the segments that have a kept column
#include "kata.cuh"
#include <algorithm>
#include <cmath>
#include <cstdint>

constexpr int THREADS = 512;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int VEC = 4;                  // consecutive columns of a lane
constexpr int CHUNK = WARP_SIZE * VEC;  // consecutive columns of a warp
constexpr int SEGMENTS = THREADS;       // of a row, one per thread in the scan; each is some chunks of one warp
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp scans the sums of all warps");

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

template <typename Pack>
__global__ void __launch_bounds__(THREADS) sample_min_p_f32_kernel(
    const float* __restrict__ x, const float* __restrict__ T, const float* __restrict__ min_p,
    const float* __restrict__ u, int* __restrict__ token, int V, int chunks) {
    __shared__ float maxima_smem[SEGMENTS];
    __shared__ float sums_smem[SEGMENTS];
    __shared__ float warps_smem[WARPS];
    __shared__ float total_smem;
    __shared__ int last_smem, segment_smem;
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    const int row = blockIdx.x;
    const float* x_row = x + static_cast<int64_t>(row) * V;
    const int64_t length = static_cast<int64_t>(chunks) * CHUNK;  // of a segment
    alignas(Pack) float values[VEC];
    // TODO(1): Each warp takes segments warp_id, warp_id + WARPS, ... and leaves each segment's maximum. (~11 lines)
    for (int segment = warp_id; segment < SEGMENTS; segment += WARPS) {
        const int64_t first = segment * length + lane_id * VEC;
        float top = -INFINITY;
        for (int c = 0; c < chunks; ++c) {
            load<Pack>(values, x_row, first + c * CHUNK, V);
#pragma unroll
            for (int j = 0; j < VEC; ++j) top = fmaxf(top, values[j]);
        }
        top = warp_reduce_max(top);
        if (lane_id == 0) maxima_smem[segment] = top;
    }
    __syncthreads();  // every thread reads the maximum of a segment
    // END TODO(1)
    // TODO(2): From the row's maximum follows what is kept. (~8 lines)
    const float warp_top = warp_reduce_max(maxima_smem[tid]);
    if (lane_id == 0) warps_smem[warp_id] = warp_top;
    if (tid == 0) last_smem = 0;
    if (tid == 0) segment_smem = SEGMENTS;
    __syncthreads();  // every warp reads what all warps wrote
    Filter filter;
    filter.top = warp_reduce_max(lane_id < WARPS ? warps_smem[lane_id] : -INFINITY);
    filter.least = filter.top + T[row] * logf(min_p[row]);
    filter.scale = 1.0f / T[row];
    // END TODO(2)
    // TODO(3): Leave the sum of each segment's kept weights. A segment without a kept column is not read again. The
    //   last segments come first: L2 still has what was read last. (~13 lines)
    for (int segment = SEGMENTS - WARPS + warp_id; segment >= 0; segment -= WARPS) {
        const int64_t first = segment * length + lane_id * VEC;
        float sum = 0.0f;
        if (maxima_smem[segment] >= filter.least) {  // the same in all lanes
            for (int c = 0; c < chunks; ++c) {
                load<Pack>(values, x_row, first + c * CHUNK, V);
#pragma unroll
                for (int j = 0; j < VEC; ++j) sum += weight_of(values[j], filter);
            }
            sum = warp_reduce_sum(sum);
        }
        if (lane_id == 0) sums_smem[segment] = sum;
    }
    __syncthreads();  // every thread reads the sum of a segment
    // END TODO(3)
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
    float target = 0.0f;
    // TODO(4): Let segment_smem be the first segment with a kept column at whose end the running sum exceeds target, u
    //   times the whole sum. (~3 lines)
    target = u[row] * total;
    if (own > 0.0f && end > target) atomicMin(&segment_smem, tid);
    __syncthreads();  // every thread reads which segment is the first
    // END TODO(4)
    const int segment = segment_smem;
    if (warp_id != segment / WARP_SIZE) return;
    // The sum of all segments before it.
    float before = __shfl_sync(FULL_MASK, end, max(segment % WARP_SIZE - 1, 0));
    if (segment % WARP_SIZE == 0) before = warp_before;
    // TODO(5): Store the first kept column at which the running sum exceeds target. Rounding may have left the sum
    //   below it at the segment's end: then it is the last kept column. (~22 lines)
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
    // END TODO(5)
}

KATA_EXPORT void sample_min_p_f32(
    const float* x, const float* T, const float* min_p, const float* u, int* token, int rows, int V,
    cudaStream_t stream) {
    const int chunks = std::max((V - 1) / (SEGMENTS * CHUNK) + 1, 2);  // of a segment; loads of two are in flight
    // All rows start at a multiple of 16 bytes only where V is a multiple of 4.
    const auto kernel = V % 4 == 0 ? sample_min_p_f32_kernel<float4> : sample_min_p_f32_kernel<float>;
    kernel<<<rows, THREADS, 0, stream>>>(x, T, min_p, u, token, V, chunks);
}
