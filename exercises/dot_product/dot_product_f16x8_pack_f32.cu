// dot_product_f16x8_pack_f32: y[0] = sum of all a[i] * b[i], eight products of halves at a time
//
// Shapes     a, b: [n] f16, contiguous, 16-byte aligned bases, y: [1] f32, any n >= 0; the sum of no elements is 0
// Technique  128-bit loads in a grid-stride loop, products and sums in float; scalar tail
// New        over dot_product_f32x4: eight halves per load, and all loads of a round before its products
// Bound      memory bandwidth; y's last bits may differ from run to run: blocks add in any order
#include "kata.cuh"
#include <algorithm>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread and step: 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block and step
constexpr int LOADS = 2;                  // per input and thread, in flight at once
constexpr int MIN_STEPS = 4;              // with fewer, a block costs more in shuffles and atomics than in loads
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

__global__ void __launch_bounds__(THREADS) dot_product_f16x8_pack_f32_kernel(
    const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ y, int n) {
    const int tid = threadIdx.x;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = gridDim.x * THREADS;
    float sum = 0.0f;
    // A grid-stride loop over the n / VEC whole vectors.
    for (int v = first; v < n / VEC; v += LOADS * stride) {
        // All loads come before the first product: nvcc moves no load across the inline assembly of __half22float2.
        // Where no vector is left, the thread adds products of zeros.
        uint4 a_rmem[LOADS] = {};
        uint4 b_rmem[LOADS] = {};
        // TODO(1): Load LOADS vectors of a and as many of b, `stride` vectors apart, each by one 128-bit access. Load
        //   nothing at or past the n / VEC whole vectors. (~8 lines)
        // END TODO(1)
        // TODO(2): Add the products of all that was loaded to the thread's own sum, as floats. (~9 lines)
        // END TODO(2)
    }
    // TODO(3): The ragged end: add the products of the n % VEC elements after the last whole vectors too, one thread
    //   per product. No thread may read at or past n. (~1 line)
    // END TODO(3)
    sum = block_reduce_sum(sum);
    if (tid == 0) atomicAdd(y, sum);
}

KATA_EXPORT void dot_product_f16x8_pack_f32(const half* a, const half* b, float* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(float), stream);  // y holds old memory contents; all bits 0 is 0.0f
    if (n == 0) return;                            // a grid of no blocks is an invalid launch
    const int blocks = std::min((n - 1) / (PER_BLOCK * MIN_STEPS) + 1, MAX_BLOCKS);
    dot_product_f16x8_pack_f32_kernel<<<blocks, THREADS, 0, stream>>>(a, b, y, n);
}
