// block_all_reduce_bf16_f32: y[0] = sum of all x, one bfloat16 per thread
//
// Shapes     x: [n] bf16, contiguous, 16-byte aligned base, y: [1] f32, any n >= 0; the sum of no elements is 0
// Technique  warp shuffles, one partial sum per warp in shared memory, one atomicAdd per block
// New        over block_all_reduce_bf16_bf16: one conversion per element; every addition after it is in float
// Bound      shuffles and atomics: a warp's load is only 64 bytes
#include "kata.cuh"
#include <cuda_bf16.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp adds the partial sums of all warps");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    block_all_reduce_bf16_f32_kernel(const __nv_bfloat16* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    const int idx = blockIdx.x * THREADS + tid;
    float sum = 0.0f;
    // TODO(1): Each thread loads one element of x as a float. A thread at or past n contributes 0 and stays: the
    //   shuffles and the barrier below wait for all threads of the block. (~1 line)
    if (idx < n) sum = __bfloat162float(x[idx]);
    // END TODO(1)
    // TODO(2): registers -> shared -> y: one partial sum per warp. The first warp adds them, with all its lanes in the
    //   shuffles. One thread of the block adds the block's sum to y. No thread may read a partial sum before it has
    //   been written. (~8 lines)
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // The first warp reads what all the other warps wrote.
    __syncthreads();
    if (warp_id == 0) {
        sum = lane_id < WARPS ? partial_smem[lane_id] : 0.0f;
        sum = warp_reduce_sum(sum);
        if (lane_id == 0) atomicAdd(y, sum);
    }
    // END TODO(2)
}

KATA_EXPORT void block_all_reduce_bf16_f32(const __nv_bfloat16* x, float* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(float), stream);  // y holds old memory contents; all bits 0 is 0.0f
    if (n == 0) return;                            // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    block_all_reduce_bf16_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
