// Wrong: the tree ends with two places, of which one is stored
// Kata: reduce_sequential_f32
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int PER_BLOCK = THREADS;  // elements per block
static_assert((THREADS & (THREADS - 1)) == 0, "every step of the tree halves the threads that add");

constexpr int blocks_for(int n) {
    return n > 0 ? (n - 1) / PER_BLOCK + 1 : 1;  // for no elements, too, one block has to store a 0
}

// Where blocks leave their sums: those of a launch, behind them those of the next, which has far fewer than half of the
// blocks. Launchers that run at the same time would share it.
__device__ float block_sums[2 * blocks_for(0x7fffffff)];

// sums[b] = the sum of block b's elements.
__global__ void __launch_bounds__(THREADS)
    reduce_sequential_f32_kernel(const float* __restrict__ x, float* __restrict__ sums, int n) {
    extern __shared__ float partial_smem[];  // [blockDim.x]
    const int tid = threadIdx.x;
    const int idx = blockIdx.x * blockDim.x + tid;
    partial_smem[tid] = idx < n ? x[idx] : 0.0f;
    // In each step a thread reads what another one wrote.
    __syncthreads();
    for (int offset = blockDim.x / 2; offset > 1; offset /= 2) {
        if (tid < offset) partial_smem[tid] += partial_smem[tid + offset];
        // The next step reads what this one wrote.
        __syncthreads();
    }
    if (tid == 0) sums[blockIdx.x] = partial_smem[0];
}

KATA_EXPORT void reduce_sequential_f32(const float* x, float* y, int n, cudaStream_t stream) {
    float* sums = nullptr;
    cudaGetSymbolAddress(reinterpret_cast<void**>(&sums), block_sums);
    constexpr int smem_bytes = THREADS * sizeof(float);
    // Kernels of one stream run one after the other: the next launch finds all sums of this one.
    while (blocks_for(n) > 1) {
        const int blocks = blocks_for(n);
        reduce_sequential_f32_kernel<<<blocks, THREADS, smem_bytes, stream>>>(x, sums, n);
        x = sums;
        n = blocks;
        sums += blocks;
    }
    reduce_sequential_f32_kernel<<<1, THREADS, smem_bytes, stream>>>(x, y, n);
}
