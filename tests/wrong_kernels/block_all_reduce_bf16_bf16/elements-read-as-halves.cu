// Wrong: the 16 bits of an element are taken for a half
// Kata: block_all_reduce_bf16_bf16
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=1
#include "kata.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp adds the partial sums of all warps");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ __nv_bfloat16 warp_reduce_sum(__nv_bfloat16 sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
        // A shuffle moves 32-bit registers: the partner's sum travels as its 16 bits.
        const int bits = __shfl_xor_sync(FULL_MASK, __bfloat16_as_ushort(sum), offset);
        sum = __hadd(sum, __ushort_as_bfloat16(bits));
    }
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    block_all_reduce_bf16_bf16_kernel(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ y, int n) {
    __shared__ __nv_bfloat16 partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    const int idx = blockIdx.x * THREADS + tid;
    __nv_bfloat16 sum = __float2bfloat16(0.0f);
    if (idx < n) sum = __float2bfloat16(__half2float(__ushort_as_half(__bfloat16_as_ushort(x[idx]))));
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // The first warp reads what all the other warps wrote.
    __syncthreads();
    if (warp_id == 0) {
        sum = lane_id < WARPS ? partial_smem[lane_id] : __float2bfloat16(0.0f);
        sum = warp_reduce_sum(sum);
        if (lane_id == 0) atomicAdd(y, sum);
    }
}

KATA_EXPORT void block_all_reduce_bf16_bf16(const __nv_bfloat16* x, __nv_bfloat16* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(__nv_bfloat16), stream);  // y comes with whatever was in memory; all bits 0 is 0
    if (n == 0) return;                                    // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    block_all_reduce_bf16_bf16_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
