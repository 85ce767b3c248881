// reduce_unroll_full_f32: y[0] = sum of all x, a tree of halves without a loop
//
// Shapes     x: [n] f32, contiguous, 16-byte aligned base, y: [1] f32, any n >= 0; the sum of no elements is 0
// Technique  512 elements per block, two per thread, added before they go to shared memory; then a tree of halves, no
//            loop, the last six steps in one warp; the next launch adds the block sums, until one block is enough
// New        over reduce_unroll_last_warp_f32: the compiler knows the block's size and unrolls all steps
// Bound      latency: one load and one tree per 512 elements, and few bytes in flight
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int PER_BLOCK = 2 * THREADS;  // elements per block
static_assert(THREADS >= 2 * WARP_SIZE, "the last warp adds two places per lane");
static_assert((THREADS & (THREADS - 1)) == 0, "every step of the tree halves the threads that add");

constexpr int blocks_for(int n) {
    return n > 0 ? (n - 1) / PER_BLOCK + 1 : 1;  // for no elements, too, one block stores a 0
}

// The blocks' sums: those of one launch, then those of the next, which has far fewer than half of the blocks. Launchers
// that run at the same time would share them.
__device__ float block_sums[2 * blocks_for(0x7fffffff)];

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
    reduce_unroll_full_f32_kernel(const float* __restrict__ x, float* __restrict__ sums, int n) {
    __shared__ float partial_smem[THREADS];
    const int tid = threadIdx.x;
    const int idx = blockIdx.x * PER_BLOCK + tid;
    const int second = idx + THREADS;  // at most 2^31 - 1
    // TODO(2): global -> shared: every thread stores the sum of two elements, idx and second, in its own place. A
    //   missing element counts as 0. Then threads read what others wrote. (~4 lines)
    float sum = idx < n ? x[idx] : 0.0f;
    if (second < n) sum += x[second];
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

KATA_EXPORT void reduce_unroll_full_f32(const float* x, float* y, int n, cudaStream_t stream) {
    float* sums = nullptr;
    cudaGetSymbolAddress(reinterpret_cast<void**>(&sums), block_sums);
    // Kernels of one stream run one after the other: the next launch sees all sums of this one.
    while (blocks_for(n) > 1) {
        const int blocks = blocks_for(n);
        reduce_unroll_full_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, sums, n);
        x = sums;
        n = blocks;
        sums += blocks;
    }
    reduce_unroll_full_f32_kernel<<<1, THREADS, 0, stream>>>(x, y, n);
}
