// reduce_interleaved_f32: y[0] = sum of all x, a tree of neighbours in shared memory
//
// Shapes     x: [n] f32, contiguous, 16-byte aligned base, y: [1] f32, any n >= 0; the sum of no elements is 0
// Technique  256 elements per block, one per thread; in each step every second of the remaining threads adds its
//            neighbour's sum; the next launch adds the block sums, until one block is enough
// New        over elementwise_f32: the tree, and the end of a launch as the barrier of the grid
// Bound      latency: a load, then eight dependent steps, each with a remainder by a run-time number
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int PER_BLOCK = THREADS;  // elements per block
static_assert((THREADS & (THREADS - 1)) == 0, "every step of the tree halves the threads that add");

constexpr int blocks_for(int n) {
    return n > 0 ? (n - 1) / PER_BLOCK + 1 : 1;  // for no elements, too, one block stores a 0
}

// The blocks' sums: those of one launch, then those of the next, which has far fewer than half of the blocks. Launchers
// that run at the same time would share them.
__device__ float block_sums[2 * blocks_for(0x7fffffff)];

// sums[b] = the sum of block b's elements.
__global__ void __launch_bounds__(THREADS)
    reduce_interleaved_f32_kernel(const float* __restrict__ x, float* __restrict__ sums, int n) {
    extern __shared__ float partial_smem[];  // [blockDim.x]
    const int tid = threadIdx.x;
    const int idx = blockIdx.x * blockDim.x + tid;
    // TODO(1): global -> shared: every thread stores one element in its own place, or 0 if there is none, because the
    //   tree adds every place. Then threads read what others wrote. (~2 lines)
    partial_smem[tid] = idx < n ? x[idx] : 0.0f;
    // In each step a thread reads what another thread wrote.
    __syncthreads();
    // END TODO(1)
    // TODO(2): Add in place, for any power of two of threads: first neighbours, then sums that are 2 apart, then 4.
    //   Place 0 ends with the sum. No step may start before the last one is done. (~4 lines)
    for (int offset = 1; offset < blockDim.x; offset *= 2) {
        if (tid % (2 * offset) == 0) partial_smem[tid] += partial_smem[tid + offset];
        // The next step reads what this one wrote.
        __syncthreads();
    }
    // END TODO(2)
    if (tid == 0) sums[blockIdx.x] = partial_smem[0];
}

KATA_EXPORT void reduce_interleaved_f32(const float* x, float* y, int n, cudaStream_t stream) {
    float* sums = nullptr;
    cudaGetSymbolAddress(reinterpret_cast<void**>(&sums), block_sums);
    constexpr int smem_bytes = THREADS * sizeof(float);
    // Kernels of one stream run one after the other: the next launch sees all sums of this one.
    while (blocks_for(n) > 1) {
        const int blocks = blocks_for(n);
        reduce_interleaved_f32_kernel<<<blocks, THREADS, smem_bytes, stream>>>(x, sums, n);
        x = sums;
        n = blocks;
        sums += blocks;
    }
    reduce_interleaved_f32_kernel<<<1, THREADS, smem_bytes, stream>>>(x, y, n);
}
