// block_all_reduce_bf16x8_pack_f32: y[0] = sum of all x, eight bfloat16 at a time
//
// Shapes     x: [n] bf16, contiguous, 16-byte aligned base, y: [1] f32, any n >= 0; the sum of no elements is 0
// Technique  128-bit loads in a grid-stride loop, each element converted to float before it is added; scalar tail
// New        over block_all_reduce_bf16x2_f32: four times the bytes per load, and the loop of f16x8_pack_f32
// Bound      memory bandwidth; y's last bits may differ from run to run: blocks add in any order
#include "kata.cuh"
#include <algorithm>
#include <cuda_bf16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread and step: 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block and step
constexpr int LOADS = 4;                  // per thread, in flight at once; a block has work for at least one such round
constexpr int MAX_BLOCKS = 2048;          // two waves on 132 SMs with 8 blocks each
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
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // The first warp reads what all the other warps wrote.
    __syncthreads();
    if (warp_id == 0) {
        sum = lane_id < WARPS ? partial_smem[lane_id] : 0.0f;
        sum = warp_reduce_sum(sum);
    }
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    block_all_reduce_bf16x8_pack_f32_kernel(const __nv_bfloat16* __restrict__ x, float* __restrict__ y, int n) {
    const int tid = threadIdx.x;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = gridDim.x * THREADS;
    float sum = 0.0f;
    // TODO(1): Walk over the n / VEC whole vectors in a grid-stride loop, with LOADS 128-bit loads in flight at once.
    //   Add them in the thread's own register, as floats from the first addition on. (~17 lines)
    // END TODO(1)
    // TODO(2): The ragged end: add the n % VEC elements after the last whole vector too, one thread per element. No
    //   thread may read at or past n. (~1 line)
    // END TODO(2)
    sum = block_reduce_sum(sum);
    if (tid == 0) atomicAdd(y, sum);
}

KATA_EXPORT void block_all_reduce_bf16x8_pack_f32(const __nv_bfloat16* x, float* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(float), stream);  // y holds old memory contents; all bits 0 is 0.0f
    if (n == 0) return;                            // a grid of no blocks is an invalid launch
    const int blocks = std::min((n - 1) / (PER_BLOCK * LOADS) + 1, MAX_BLOCKS);
    block_all_reduce_bf16x8_pack_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
