// reduce_multi_add_f32: y[0] = sum of all x, many elements per thread in a bounded grid
//
// Shapes     x: [n] f32, contiguous, 16-byte aligned base, y: [1] f32, any n >= 0; the sum of no elements is 0
// Technique  at most 2048 blocks, which walk over x and add in registers, at least 2048 elements each; then a tree of
//            halves without a loop; one more block adds the block sums
// New        over reduce_unroll_full_f32: the grid stops growing, and a block builds one tree for all that it walks
//            over
// Bound      memory bandwidth, as far as 4-byte loads keep enough bytes in flight
#include "kata.cuh"
#include <algorithm>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int MIN_PER_BLOCK = 2048;  // elements: with fewer, a block costs more in its tree than in loads
constexpr int MAX_BLOCKS = 2048;     // two waves on 132 SMs with 8 blocks each
static_assert(THREADS >= 2 * WARP_SIZE, "the last warp adds two places per lane");
static_assert(MAX_BLOCKS <= MIN_PER_BLOCK, "one block adds the sums of all others");
static_assert((THREADS & (THREADS - 1)) == 0, "every step of the tree halves the threads that add");

constexpr int blocks_for(int n) {
    return n > 0 ? std::min((n - 1) / MIN_PER_BLOCK + 1, MAX_BLOCKS) : 1;  // for no elements, too, one block stores a 0
}

// The blocks' sums. Launchers that run at the same time would share them.
__device__ float block_sums[MAX_BLOCKS];

// Places 0 to 63 -> place 0: their sum. All 32 lanes of one warp must call it together.
__device__ __forceinline__ void warp_reduce_smem(float* partial_smem, int lane_id) {
    float sum = partial_smem[lane_id];
    // TODO(1): The last six steps of the tree, with all lanes in each. No lane reads what lanes at or above the offset
    //   add. Lanes of a warp need not run in step: in each step all must have read before one writes, and all must have
    //   written before one reads. (~7 lines)
#pragma unroll
    for (int offset = WARP_SIZE; offset > 0; offset /= 2) {
        sum += partial_smem[lane_id + offset];
        // No lane may overwrite what another lane has yet to read.
        __syncwarp();
        partial_smem[lane_id] = sum;
        // No lane may read before it is written.
        __syncwarp();
    }
    // END TODO(1)
}

// sums[b] = the sum of block b's elements.
__global__ void __launch_bounds__(THREADS)
    reduce_multi_add_f32_kernel(const float* __restrict__ x, float* __restrict__ sums, int n) {
    __shared__ float partial_smem[THREADS];
    const int tid = threadIdx.x;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = gridDim.x * THREADS;
    float sum = 0.0f;
    // TODO(2): global -> shared: every thread walks over x in a grid-stride loop, adds in a register, and stores the
    //   sum in its own place. The index may exceed 2^31 - 1 in its last step. (~5 lines)
    // Unrolled: four loads are in flight before the first value is needed. 64 bits: i + stride may exceed 2^31 - 1.
#pragma unroll 4
    for (long long i = first; i < n; i += stride) sum += x[i];
    partial_smem[tid] = sum;
    // In each step a thread reads what another thread wrote.
    __syncthreads();
    // END TODO(2)
    // TODO(3): Halve the places as before while more than one warp adds, in steps that the compiler can unroll. The
    //   first warp adds the remaining 64. No step may start before the last one is done. (~6 lines)
#pragma unroll
    for (int offset = THREADS / 2; offset > WARP_SIZE; offset /= 2) {
        if (tid < offset) partial_smem[tid] += partial_smem[tid + offset];
        // The next step reads what this one wrote.
        __syncthreads();
    }
    if (tid < WARP_SIZE) warp_reduce_smem(partial_smem, tid);
    // END TODO(3)
    if (tid == 0) sums[blockIdx.x] = partial_smem[0];
}

KATA_EXPORT void reduce_multi_add_f32(const float* x, float* y, int n, cudaStream_t stream) {
    float* sums = nullptr;
    cudaGetSymbolAddress(reinterpret_cast<void**>(&sums), block_sums);
    // Kernels of one stream run one after the other: the next launch sees all sums of this one.
    while (blocks_for(n) > 1) {
        const int blocks = blocks_for(n);
        reduce_multi_add_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, sums, n);
        x = sums;
        n = blocks;
    }
    reduce_multi_add_f32_kernel<<<1, THREADS, 0, stream>>>(x, y, n);
}
