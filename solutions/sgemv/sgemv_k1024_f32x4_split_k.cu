// sgemv_k1024_f32x4_split_k: y = A x, one block per slice of a row, 128-bit loads, four in flight
//
// Shapes     A: [M, K], x: [K], y: [M] f32, row-major, contiguous, 16-byte aligned bases, any M, K >= 0; K = 0: y is 0
// Technique  each block stores the sum of its slice; a second kernel adds the slices of a row in a fixed order
// New        over sgemv_k1024_f32x4_block: split-K: enough blocks even for few rows; a fixed order of additions
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cstdint>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int UNROLL = 4;         // vectors of A, and of x, that a thread has in flight at once
constexpr int MIN_BLOCKS = 4;     // per SM: allows 64 registers per thread. By default nvcc uses fewer and loads late
constexpr int MIN_SLICE = 1024;   // columns; a shorter slice does not pay for its block
constexpr int MAX_SLICES = 8192;  // over all rows, where rows are cut: some sixteen waves on 132 SMs
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp adds the partial sums of all warps");

// The slice sums of all rows, [M, slices]. Launches that run at the same time would share them.
__device__ float slice_sums[MAX_SLICES];

// Every lane gets the sum over the warp's 32 lanes. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// A load moves one Pack. VEC divides K, so a vector lies either wholly in the row or wholly outside it. Every row
// starts at a multiple of sizeof(Pack).
template <typename Pack>
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS) sgemv_k1024_f32x4_split_k_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ x,  // [K]
    float* __restrict__ y,        // [M]
    int M, int K,
    int slices) {  // per row
    constexpr int VEC = sizeof(Pack) / sizeof(float);
    constexpr int STEP = THREADS * VEC;  // columns that one vector per thread covers
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    const int64_t row = blockIdx.x / slices;  // offsets into A are 64-bit: M and K fit int, their product may not
    const float* A_row = A + row * K;
    int64_t begin = 0;
    int64_t end = K;
    // TODO(1): Give each block a slice of the row, columns begin to end - 1. No slice passes K. The slices are
    //   as even as starts at multiples of VEC allow. (~3 lines)
    const int64_t slice_k = ((K - 1) / (slices * VEC) + 1) * static_cast<int64_t>(VEC);
    begin = blockIdx.x % slices * slice_k;
    end = begin + slice_k < K ? begin + slice_k : K;
    // END TODO(1)
    float sum = 0.0f;
    for (int64_t k = begin + tid * VEC; k < end; k += UNROLL * STEP) {
        alignas(Pack) float a_rmem[UNROLL][VEC] = {};
        alignas(Pack) float x_rmem[UNROLL][VEC] = {};
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            if (k + i * STEP < end) {
                *reinterpret_cast<Pack*>(a_rmem[i]) = __ldcs(reinterpret_cast<const Pack*>(A_row + k + i * STEP));
                *reinterpret_cast<Pack*>(x_rmem[i]) = *reinterpret_cast<const Pack*>(x + k + i * STEP);
            }
        }
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) sum += a_rmem[i][j] * x_rmem[i][j];
        }
    }
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // The first warp reads what all the other warps wrote.
    __syncthreads();
    if (warp_id == 0) {
        sum = lane_id < WARPS ? partial_smem[lane_id] : 0.0f;
        sum = warp_reduce_sum(sum);
        // TODO(2): Store the sum once: in y if the row has one slice, otherwise in this slice's element of slice_sums.
        //   (~2 lines)
        if (lane_id == 0 && slices == 1) y[row] = sum;
        if (lane_id == 0 && slices > 1) slice_sums[blockIdx.x] = sum;
        // END TODO(2)
    }
}

// y[row] = the sum of the row's slices, one warp per row.
__global__ void __launch_bounds__(THREADS) add_slices_kernel(float* __restrict__ y, int M, int slices) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int row = blockIdx.x * WARPS + threadIdx.x / WARP_SIZE;
    if (row >= M) return;
    float sum = 0.0f;
    // TODO(3): Add up all slice sums of the row, always in the same order, and store y[row] once. The row may have any
    //   number of slices. (~3 lines)
    for (int i = lane_id; i < slices; i += WARP_SIZE) sum += slice_sums[row * slices + i];
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) y[row] = sum;
    // END TODO(3)
}

KATA_EXPORT void sgemv_k1024_f32x4_split_k(
    const float* A, const float* x, float* y, int M, int K, cudaStream_t stream) {
    if (M == 0) return;  // a grid of no blocks is an invalid launch. K = 0 is valid: the sums are empty
    // As many slices as MAX_SLICES allows for all rows, unless they become too short.
    const int slices = std::max(1, std::min(MAX_SLICES / M, K / MIN_SLICE));
    if (K % 4 == 0) {
        sgemv_k1024_f32x4_split_k_kernel<float4><<<M * slices, THREADS, 0, stream>>>(A, x, y, M, K, slices);
    } else {
        sgemv_k1024_f32x4_split_k_kernel<float><<<M * slices, THREADS, 0, stream>>>(A, x, y, M, K, slices);
    }
    // TODO(4): Add up the slices where a row has several. No sum may be read before the first kernel has written it,
    //   and the host may not wait. (~1 line)
    // The stream keeps the order: the second kernel starts after the first has finished.
    if (slices > 1) add_slices_kernel<<<(M - 1) / WARPS + 1, THREADS, 0, stream>>>(y, M, slices);
    // END TODO(4)
}
