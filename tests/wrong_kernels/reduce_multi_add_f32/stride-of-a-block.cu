// Wrong: every block walks in strides of its own width, so that all but the first elements are added by several
// Kata: reduce_multi_add_f32
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=2049
#include "kata.cuh"
#include <algorithm>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int MIN_PER_BLOCK = 2048;  // elements: fewer, and a block costs more in its tree than in loads
constexpr int MAX_BLOCKS = 2048;     // two waves on 132 SMs with 8 blocks each
static_assert(THREADS >= 2 * WARP_SIZE, "the last warp adds two places per lane");
static_assert(MAX_BLOCKS <= MIN_PER_BLOCK, "one block adds the sums of all others");
static_assert((THREADS & (THREADS - 1)) == 0, "every step of the tree halves the threads that add");

constexpr int blocks_for(int n) {
    return n > 0 ? std::min((n - 1) / MIN_PER_BLOCK + 1, MAX_BLOCKS) : 1;  // for no elements, too, one has to store a 0
}

// Where blocks leave their sums. Launchers that run at the same time would share it.
__device__ float block_sums[MAX_BLOCKS];

// Places 0 to 63 -> place 0: their sum. All 32 lanes of one warp must call it together.
__device__ __forceinline__ void warp_reduce_smem(float* partial_smem, int lane_id) {
    float sum = partial_smem[lane_id];
#pragma unroll
    for (int offset = WARP_SIZE; offset > 0; offset /= 2) {
        sum += partial_smem[lane_id + offset];
        // No lane may write what another one has still to read.
        __syncwarp();
        partial_smem[lane_id] = sum;
        // And none may read before it is written.
        __syncwarp();
    }
}

// sums[b] = the sum of block b's elements.
__global__ void __launch_bounds__(THREADS)
    reduce_multi_add_f32_kernel(const float* __restrict__ x, float* __restrict__ sums, int n) {
    __shared__ float partial_smem[THREADS];
    const int tid = threadIdx.x;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = THREADS;
    float sum = 0.0f;
    // Unrolled, four loads are on their way before the first is needed. 64 bits: i + stride may pass 2^31 - 1.
#pragma unroll 4
    for (long long i = first; i < n; i += stride) sum += x[i];
    partial_smem[tid] = sum;
    // In each step a thread reads what another one wrote.
    __syncthreads();
#pragma unroll
    for (int offset = THREADS / 2; offset > WARP_SIZE; offset /= 2) {
        if (tid < offset) partial_smem[tid] += partial_smem[tid + offset];
        // The next step reads what this one wrote.
        __syncthreads();
    }
    if (tid < WARP_SIZE) warp_reduce_smem(partial_smem, tid);
    if (tid == 0) sums[blockIdx.x] = partial_smem[0];
}

KATA_EXPORT void reduce_multi_add_f32(const float* x, float* y, int n, cudaStream_t stream) {
    float* sums = nullptr;
    cudaGetSymbolAddress(reinterpret_cast<void**>(&sums), block_sums);
    // Kernels of one stream run one after the other: the next launch finds all sums of this one.
    while (blocks_for(n) > 1) {
        const int blocks = blocks_for(n);
        reduce_multi_add_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, sums, n);
        x = sums;
        n = blocks;
    }
    reduce_multi_add_f32_kernel<<<1, THREADS, 0, stream>>>(x, y, n);
}
