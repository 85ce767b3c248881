// softmax_f32_fence: y[i] = exp(x[i]) / sum of exp over all of x, one sum for the whole grid
//
// Shapes     x, y: [n] f32, contiguous, 16-byte aligned bases, any n >= 0, |x| <= 20 or -inf
// Technique  each block stores its sum in global memory, the grid waits for all blocks (cooperative launch), then
//            divides
// New        over softmax_f32: the sum spans blocks; a fence makes writes visible, but only a barrier waits for them
// Bound      memory bandwidth: x is read twice, the second time from L2 only as far as it fits
#include "kata.cuh"
#include <algorithm>
#include <cooperative_groups.h>
#include <cstdint>

namespace cg = cooperative_groups;

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// The sum over the block's threads, in every thread. All threads must call it together. The grid's barrier must be
// between two calls, because a slow warp may still read the partial sums of the first.
__device__ __forceinline__ float block_reduce_sum(float sum, float* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < WARPS ? partial_smem[lane_id] : 0.0f);
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    softmax_f32_fence_kernel(const float* __restrict__ x, float* __restrict__ y, float* partial_gmem, int n) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * THREADS + tid;
    const int64_t step = static_cast<int64_t>(gridDim.x) * THREADS;
    float sum = 0.0f;
    // TODO(1): Sum the exponentials of this thread's share of x. The grid's threads together must cover 0..n-1 once,
    //   coalesced. (~1 line)
    // END TODO(1)
    sum = block_reduce_sum(sum, partial_smem);
    float total = 0.0f;
    // TODO(2): Store this block's sum for the grid (partial_gmem has a place for each block) and wait until every block
    //   has done so. Then add all of them up, in every thread of every block. A fence only orders this thread's own
    //   writes. It does not wait for other threads. (~4 lines)
    // END TODO(2)
    // TODO(3): Write this thread's share of y. Divide once for all of it. (~2 lines)
    // END TODO(3)
}

KATA_EXPORT void softmax_f32_fence(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    int blocks = 0;
    // TODO(4): All blocks must be resident at once. Otherwise the running blocks wait forever for those that cannot
    //   start. Ask how many blocks fit on the device, and launch at most as many of them as n keeps busy. (~5 lines)
    // END TODO(4)
    float* partial_gmem = nullptr;
    cudaMallocAsync(&partial_gmem, blocks * sizeof(float), stream);
    // <<<...>>> does not promise that all blocks are resident together. This launch does, or it fails.
    void* arguments[] = {&x, &y, &partial_gmem, &n};
    cudaLaunchCooperativeKernel(
        reinterpret_cast<const void*>(softmax_f32_fence_kernel), blocks, THREADS, arguments, 0, stream);
    cudaFreeAsync(partial_gmem, stream);
}
