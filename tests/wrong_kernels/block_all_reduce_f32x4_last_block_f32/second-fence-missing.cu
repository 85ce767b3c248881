// Wrong: the sums may be read before the count was: what other blocks wrote before their fence is asked for without one
// Kata: block_all_reduce_f32x4_last_block_f32
// Sim: race
// Gpu: not shown: the sums are read by way of the L2 cache, where they are by then
// Line: // BUG
#include "kata.cuh"
#include <algorithm>

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // elements per thread and step: float4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block and step
constexpr int MIN_STEPS = 4;              // fewer, and a block costs more in shuffles than in loads
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

// Where blocks leave their sums, and how many have. Launches that run at the same time would share both.
__device__ float block_sums[MAX_BLOCKS];
__device__ unsigned finished_blocks;  // 0 before and after every launch

__global__ void __launch_bounds__(THREADS)
    block_all_reduce_f32x4_last_block_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ bool is_last_smem;
    const int tid = threadIdx.x;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = gridDim.x * THREADS;
    float sum = 0.0f;
    // Unrolled, four loads are on their way before the first is needed.
#pragma unroll 4
    for (int v = first; v < n / VEC; v += stride) {
        const float4 x4 = *reinterpret_cast<const float4*>(x + v * VEC);
        // In pairs: fewer roundings one behind the other, and adds that do not wait for each other.
        sum += (x4.x + x4.y) + (x4.z + x4.w);
    }
    if (first < n % VEC) sum += x[n - 1 - first];
    sum = block_reduce_sum(sum);
    if (tid == 0) {
        block_sums[blockIdx.x] = sum;
        __threadfence();  // the sum must be there before it is counted
        // Counts to gridDim.x - 1 and wraps to 0, ready for the next launch.
        is_last_smem = atomicInc(&finished_blocks, gridDim.x - 1) == gridDim.x - 1;
    }
    // All threads read is_last_smem, and the first warp has read the partial sums before the block writes new ones.
    __syncthreads();
    if (!is_last_smem) return;
    sum = 0.0f;
    for (int block = tid; block < gridDim.x; block += THREADS) sum += block_sums[block];  // BUG
    sum = block_reduce_sum(sum);
    if (tid == 0) y[0] = sum;
}

KATA_EXPORT void block_all_reduce_f32x4_last_block_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) {  // a grid of no blocks is an invalid launch
        cudaMemsetAsync(y, 0, sizeof(float), stream);
        return;
    }
    const int blocks = std::min((n - 1) / (PER_BLOCK * MIN_STEPS) + 1, MAX_BLOCKS);
    block_all_reduce_f32x4_last_block_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
