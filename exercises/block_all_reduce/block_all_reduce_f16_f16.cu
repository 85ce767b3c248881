// block_all_reduce_f16_f16: y[0] = sum of all x, one half per thread
//
// Shapes     x: [n] f16, contiguous, 16-byte aligned base, y: [1] f16, any n >= 0; the sum of no elements is 0
// Technique  warp shuffles, one partial sum per warp in shared memory, one atomicAdd per block, every sum in half
// New        over block_all_reduce_f32_f32: registers, shared memory and y are halves; each addition rounds to 11 bits
// Bound      one atomicAdd per block; on 16 bits it is a compare-and-swap loop
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp adds the partial sums of all warps");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ half warp_reduce_sum(half sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
        // A shuffle moves 32-bit registers: the partner's sum travels as its 16 bits.
        const int bits = __shfl_xor_sync(FULL_MASK, __half_as_ushort(sum), offset);
        sum = __hadd(sum, __ushort_as_half(bits));
    }
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    block_all_reduce_f16_f16_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    __shared__ half partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    const int idx = blockIdx.x * THREADS + tid;
    half sum = __float2half(0.0f);
    // TODO(1): Each thread loads one element of x. A thread at or past n contributes 0 and stays: the shuffles and the
    //   barrier below wait for all threads of the block. (~1 line)
    // END TODO(1)
    // TODO(2): registers -> shared -> y: one partial sum per warp. The first warp adds them, with all its lanes in the
    //   shuffles. One thread of the block adds the block's sum to y. No thread may read a partial sum before it has
    //   been written. (~8 lines)
    // END TODO(2)
}

KATA_EXPORT void block_all_reduce_f16_f16(const half* x, half* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(half), stream);  // y holds old memory contents; all bits 0 is 0
    if (n == 0) return;                           // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    block_all_reduce_f16_f16_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
