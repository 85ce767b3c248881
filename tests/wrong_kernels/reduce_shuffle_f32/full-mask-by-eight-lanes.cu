// Wrong: eight lanes call a shuffle that names all 32
// Kata: reduce_shuffle_f32
// Sim: deadlock
// Gpu: pass | wrong answer | time-out: what a shuffle does whose mask names lanes that do not come is undefined
#include "kata.cuh"
#include <algorithm>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
constexpr int MIN_PER_BLOCK = 2048;  // elements: fewer, and a block costs more in its tree than in loads
constexpr int MAX_BLOCKS = 2048;     // two waves on 132 SMs with 8 blocks each
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp adds the partial sums of all warps");
static_assert(MAX_BLOCKS <= MIN_PER_BLOCK, "one block adds the sums of all others");

constexpr int blocks_for(int n) {
    return n > 0 ? std::min((n - 1) / MIN_PER_BLOCK + 1, MAX_BLOCKS) : 1;  // for no elements, too, one has to store a 0
}

// Where blocks leave their sums. Launchers that run at the same time would share it.
__device__ float block_sums[MAX_BLOCKS];

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// sums[b] = the sum of block b's elements.
__global__ void __launch_bounds__(THREADS)
    reduce_shuffle_f32_kernel(const float* __restrict__ x, float* __restrict__ sums, int n) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = gridDim.x * THREADS;
    float sum = 0.0f;
    // Unrolled, four loads are on their way before the first is needed. 64 bits: i + stride may pass 2^31 - 1.
#pragma unroll 4
    for (long long i = first; i < n; i += stride) sum += x[i];
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // The first warp reads what all the other warps wrote.
    __syncthreads();
    if (tid < WARPS) {
        sum = partial_smem[lane_id];
        sum = warp_reduce_sum(sum);
        if (lane_id == 0) sums[blockIdx.x] = sum;
    }
}

KATA_EXPORT void reduce_shuffle_f32(const float* x, float* y, int n, cudaStream_t stream) {
    float* sums = nullptr;
    cudaGetSymbolAddress(reinterpret_cast<void**>(&sums), block_sums);
    // Kernels of one stream run one after the other: the next launch finds all sums of this one.
    while (blocks_for(n) > 1) {
        const int blocks = blocks_for(n);
        reduce_shuffle_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, sums, n);
        x = sums;
        n = blocks;
    }
    reduce_shuffle_f32_kernel<<<1, THREADS, 0, stream>>>(x, y, n);
}
