// reduce_first_add_f32: y[0] = sum of all x, a tree of halves over sums of two
//
// Shapes     x: [n] f32, contiguous, 16-byte aligned base, y: [1] f32, any n >= 0; the sum of no elements is 0
// Technique  512 elements per block, two per thread, added before they go to shared memory; then a tree of halves; the
//            next launch adds the block sums, until one block is enough
// New        over reduce_sequential_f32: half of the blocks, so half of the trees; two loads in flight per thread
// Bound      latency: the tree, in which most warps only wait at the barriers
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int PER_BLOCK = 2 * THREADS;  // elements per block
static_assert((THREADS & (THREADS - 1)) == 0, "every step of the tree halves the threads that add");

constexpr int blocks_for(int n) {
    return n > 0 ? (n - 1) / PER_BLOCK + 1 : 1;  // for no elements, too, one block stores a 0
}

// The blocks' sums: those of one launch, then those of the next, which has far fewer than half of the blocks. Launchers
// that run at the same time would share them.
__device__ float block_sums[2 * blocks_for(0x7fffffff)];

// sums[b] = the sum of block b's elements.
__global__ void __launch_bounds__(THREADS)
    reduce_first_add_f32_kernel(const float* __restrict__ x, float* __restrict__ sums, int n) {
    extern __shared__ float partial_smem[];  // [blockDim.x]
    const int tid = threadIdx.x;
    const int idx = blockIdx.x * (2 * blockDim.x) + tid;
    const int second = idx + blockDim.x;  // at most 2^31 - 1
    // TODO(1): global -> shared: every thread stores the sum of two elements, idx and second, in its own place. A
    //   missing element counts as 0. Then threads read what others wrote. (~4 lines)
    float sum = idx < n ? x[idx] : 0.0f;
    if (second < n) sum += x[second];
    partial_smem[tid] = sum;
    // In each step a thread reads what another thread wrote.
    __syncthreads();
    // END TODO(1)
    // TODO(2): Add the second half of the places to the first half, then the second quarter to the first, until place 0
    //   holds the sum. Neighbouring threads access neighbouring places. No step may start before the last one is done.
    //   (~4 lines)
    for (int offset = blockDim.x / 2; offset > 0; offset /= 2) {
        if (tid < offset) partial_smem[tid] += partial_smem[tid + offset];
        // The next step reads what this one wrote.
        __syncthreads();
    }
    // END TODO(2)
    if (tid == 0) sums[blockIdx.x] = partial_smem[0];
}

KATA_EXPORT void reduce_first_add_f32(const float* x, float* y, int n, cudaStream_t stream) {
    float* sums = nullptr;
    cudaGetSymbolAddress(reinterpret_cast<void**>(&sums), block_sums);
    constexpr int smem_bytes = THREADS * sizeof(float);
    // Kernels of one stream run one after the other: the next launch sees all sums of this one.
    while (blocks_for(n) > 1) {
        const int blocks = blocks_for(n);
        reduce_first_add_f32_kernel<<<blocks, THREADS, smem_bytes, stream>>>(x, sums, n);
        x = sums;
        n = blocks;
        sums += blocks;
    }
    reduce_first_add_f32_kernel<<<1, THREADS, smem_bytes, stream>>>(x, y, n);
}
