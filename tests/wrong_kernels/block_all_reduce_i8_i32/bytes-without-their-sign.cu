// Wrong: negative bytes are widened with zeros
// Kata: block_all_reduce_i8_i32
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=1
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp adds the partial sums of all warps");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ int warp_reduce_sum(int sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    block_all_reduce_i8_i32_kernel(const int8_t* __restrict__ x, int* __restrict__ y, int n) {
    __shared__ int partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    const int idx = blockIdx.x * THREADS + tid;
    int sum = 0;
    if (idx < n) sum = static_cast<uint8_t>(x[idx]);
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // The first warp reads what all the other warps wrote.
    __syncthreads();
    if (warp_id == 0) {
        sum = lane_id < WARPS ? partial_smem[lane_id] : 0;
        sum = warp_reduce_sum(sum);
        if (lane_id == 0) atomicAdd(y, sum);
    }
}

KATA_EXPORT void block_all_reduce_i8_i32(const int8_t* x, int* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(int), stream);  // y comes with whatever was in memory
    if (n == 0) return;                          // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    block_all_reduce_i8_i32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
