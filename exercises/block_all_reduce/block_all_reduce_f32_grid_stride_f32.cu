// block_all_reduce_f32_grid_stride_f32: y[0] = sum of all x, any number of floats per thread
//
// Shapes     x: [n] f32, contiguous, 16-byte aligned base, y: [1] f32, any n >= 0; the sum of no elements is 0
// Technique  a grid-stride loop in a grid of bounded size, then the block reduction
// New        over block_all_reduce_f32_f32: each thread adds many elements; the number of atomics stops growing with n
// Bound      memory bandwidth; y's last bits may differ from run to run: blocks add in any order
#include "kata.cuh"
#include <algorithm>

constexpr int THREADS = 256;
constexpr int MIN_STEPS = 4;      // with fewer, a block costs more in shuffles and atomics than in loads
constexpr int MAX_BLOCKS = 2048;  // two waves on 132 SMs with 8 blocks each
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
    // TODO(1): registers -> shared -> registers: one partial sum per warp. The first warp adds them, with all its lanes
    //   in the shuffles. No thread may read a partial sum before it has been written. (~7 lines)
    // END TODO(1)
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    block_all_reduce_f32_grid_stride_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int tid = threadIdx.x;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = gridDim.x * THREADS;
    float sum = 0.0f;
    // TODO(2): Walk over x in a grid-stride loop, 32 neighbours per warp in every step, and add in a register. The
    //   index may exceed 2^31 - 1 in its last step. (~3 lines)
    // END TODO(2)
    sum = block_reduce_sum(sum);
    if (tid == 0) atomicAdd(y, sum);
}

KATA_EXPORT void block_all_reduce_f32_grid_stride_f32(const float* x, float* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(float), stream);  // y holds old memory contents; all bits 0 is 0.0f
    if (n == 0) return;                            // a grid of no blocks is an invalid launch
    // TODO(3): Launch enough blocks for MIN_STEPS elements per thread, at least one, and at most MAX_BLOCKS. Their loop
    //   covers the rest. (~2 lines)
    // END TODO(3)
}
