// Wrong: blocks wait for all others on a counter, but those that do not fit cannot start before these end
// Kata: softmax_f32_fence
// Sim: not shown: it shows where blocks do not all fit, and the simulator is given fewer
// Gpu: time-out
#include "kata.cuh"
#include <cstdint>

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

// The sum over the block's threads, in every thread. All threads must call it together.
__device__ __forceinline__ float block_reduce_sum(float sum, float* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    // A slow warp may still read the partial sums of the call before.
    __syncthreads();
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < WARPS ? partial_smem[lane_id] : 0.0f);
    return sum;
}

__global__ void __launch_bounds__(THREADS) softmax_f32_fence_kernel(
    const float* __restrict__ x, float* __restrict__ y, float* partial_gmem, int* arrived, int n) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * THREADS + tid;
    const int64_t step = static_cast<int64_t>(gridDim.x) * THREADS;
    float sum = 0.0f;
    for (int64_t idx = first; idx < n; idx += step) sum += __expf(x[idx]);
    sum = block_reduce_sum(sum, partial_smem);
    float total = 0.0f;
    if (tid == 0) {
        partial_gmem[blockIdx.x] = sum;
        __threadfence();
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < gridDim.x) {
        }
        __threadfence();
    }
    __syncthreads();
    for (int i = tid; i < gridDim.x; i += THREADS) total += partial_gmem[i];
    total = block_reduce_sum(total, partial_smem);
    const float scale = 1.0f / total;
    for (int64_t idx = first; idx < n; idx += step) y[idx] = __expf(x[idx]) * scale;
}

KATA_EXPORT void softmax_f32_fence(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    int blocks = 1;
    blocks = (n - 1) / THREADS + 1;
    float* partial_gmem = nullptr;
    cudaMallocAsync(&partial_gmem, blocks * sizeof(float), stream);
    int* arrived = nullptr;
    cudaMallocAsync(&arrived, sizeof(int), stream);
    cudaMemsetAsync(arrived, 0, sizeof(int), stream);
    softmax_f32_fence_kernel<<<blocks, THREADS, 0, stream>>>(x, y, partial_gmem, arrived, n);
    cudaFreeAsync(arrived, stream);
    cudaFreeAsync(partial_gmem, stream);
}
