// block_all_reduce_f32x4_last_block_f32: y[0] = sum of all x, four floats at a time
//
// Shapes     x: [n] f32, contiguous, 16-byte aligned base, y: [1] f32, any n >= 0; the sum of no elements is 0
// Technique  128-bit loads in a grid-stride loop; the block that finishes last adds the sums of all blocks
// New        over block_all_reduce_f32x4_f32: no atomics on y, so the same n gives the same order and the same bits
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // elements per thread and step: float4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block and step
constexpr int MIN_STEPS = 4;              // with fewer, a block costs more in shuffles than in loads
constexpr int MAX_BLOCKS = 2048;          // two waves on 132 SMs with 8 blocks each
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

// The sum over the block, in every lane of its first warp. All threads must call it together.
__device__ __forceinline__ float block_reduce_sum(float sum) {
    __shared__ float partial_smem[WARPS];
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // The first warp reads what all the other warps wrote.
    __syncthreads();
    if (warp_id == 0) {
        sum = lane_id < WARPS ? partial_smem[lane_id] : 0.0f;
        sum = warp_reduce_sum(sum);
    }
    return sum;
}

// The blocks' sums, and how many are stored. Launches that run at the same time would share both.
__device__ float block_sums[MAX_BLOCKS];
__device__ unsigned finished_blocks;  // 0 before and after every launch

__global__ void __launch_bounds__(THREADS)
    block_all_reduce_f32x4_last_block_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ bool is_last_smem;
    const int tid = threadIdx.x;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = gridDim.x * THREADS;
    float sum = 0.0f;
    // TODO(1): Walk over the n / VEC whole vectors in a grid-stride loop, one 128-bit load per step, and add in
    //   registers. (~5 lines)
    // END TODO(1)
    // TODO(2): The ragged end: add the n % VEC elements after the last whole vector too, one thread per element. No
    //   thread may read at or past n. (~1 line)
    // END TODO(2)
    sum = block_reduce_sum(sum);
    // TODO(3): Let one thread per block store the block's sum, and find out whether all other blocks have stored
    //   theirs. The thread that reads the counter's last value must see all sums. Every launch must find the counter at
    //   0. (~5 lines)
    // END TODO(3)
    // All threads read is_last_smem, and the first warp reads the partial sums, before the block writes new ones.
    __syncthreads();
    if (!is_last_smem) return;
    // TODO(4): The last block adds the sums of all gridDim.x blocks, always in the same order. Each thread adds its
    //   share first. One thread stores the result in y. (~4 lines)
    // END TODO(4)
}

KATA_EXPORT void block_all_reduce_f32x4_last_block_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) {  // a grid of no blocks is an invalid launch
        cudaMemsetAsync(y, 0, sizeof(float), stream);
        return;
    }
    const int blocks = std::min((n - 1) / (PER_BLOCK * MIN_STEPS) + 1, MAX_BLOCKS);
    block_all_reduce_f32x4_last_block_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
