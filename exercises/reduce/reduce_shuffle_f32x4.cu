// reduce_shuffle_f32x4: y[0] = sum of all x, four floats in each load
//
// Shapes     x: [n] f32, contiguous, 16-byte aligned base, y: [1] f32, any n >= 0; the sum of no elements is 0
// Technique  at most 2048 blocks, which walk over x in vectors and add in registers, at least 2048 elements each; then
//            warp shuffles and one partial sum per warp in shared memory; one more block adds the block sums
// New        over reduce_shuffle_f32: a quarter of the loads, four times the bytes in flight; scalar tail
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>

constexpr int THREADS = 256;
constexpr int VEC = 4;  // elements per load: float4 is 16 bytes
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
constexpr int MIN_PER_BLOCK = 2048;  // elements: with fewer, a block costs more in its tree than in loads
constexpr int MAX_BLOCKS = 2048;     // two waves on 132 SMs with 8 blocks each
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp adds the partial sums of all warps");
static_assert(MAX_BLOCKS <= MIN_PER_BLOCK, "one block adds the sums of all others");

constexpr int blocks_for(int n) {
    return n > 0 ? std::min((n - 1) / MIN_PER_BLOCK + 1, MAX_BLOCKS) : 1;  // for no elements, too, one block stores a 0
}

// The blocks' sums. Launchers that run at the same time would share them.
alignas(VEC * sizeof(float)) __device__ float block_sums[MAX_BLOCKS];

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
    // TODO(1): Five steps from register to register: in each step every lane adds the sum of the lane whose number
    //   differs from its own in one bit. (~2 lines)
    // END TODO(1)
    return sum;
}

// sums[b] = the sum of block b's elements.
__global__ void __launch_bounds__(THREADS)
    reduce_shuffle_f32x4_kernel(const float* __restrict__ x, float* __restrict__ sums, int n) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = gridDim.x * THREADS;
    float sum = 0.0f;
    // TODO(2): global -> registers: every thread walks over the n / VEC whole vectors in a grid-stride loop, with one
    //   128-bit load per step, and adds in a register. (~5 lines)
    // END TODO(2)
    // TODO(3): The ragged end: add the n % VEC elements after the last whole vector too, one thread per element. No
    //   thread may read at or past n. (~1 line)
    // END TODO(3)
    // TODO(4): registers -> shared -> sums: one partial sum per warp. The first warp adds them, with all its lanes in
    //   the shuffles. One thread stores the block's sum. No thread may read a partial sum before it is written.
    //   (~8 lines)
    // END TODO(4)
}

KATA_EXPORT void reduce_shuffle_f32x4(const float* x, float* y, int n, cudaStream_t stream) {
    float* sums = nullptr;
    cudaGetSymbolAddress(reinterpret_cast<void**>(&sums), block_sums);
    // Kernels of one stream run one after the other: the next launch sees all sums of this one.
    while (blocks_for(n) > 1) {
        const int blocks = blocks_for(n);
        reduce_shuffle_f32x4_kernel<<<blocks, THREADS, 0, stream>>>(x, sums, n);
        x = sums;
        n = blocks;
    }
    reduce_shuffle_f32x4_kernel<<<1, THREADS, 0, stream>>>(x, y, n);
}
