// dot_product_f32x4: y[0] = sum of all a[i] * b[i], four products at a time
//
// Shapes     a, b: [n] f32, contiguous, 16-byte aligned bases, y: [1] f32, any n >= 0; the sum of no elements is 0
// Technique  128-bit loads in a grid-stride loop, then the block reduction; scalar tail
// New        over dot_product_f32: a bounded grid with 128-bit loads, as in block_all_reduce_f32x4_f32
// Bound      memory bandwidth; y's last bits may differ from run to run: blocks add in any order
#include "kata.cuh"
#include <algorithm>

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // elements per thread and step: float4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block and step
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

__global__ void __launch_bounds__(THREADS)
    dot_product_f32x4_kernel(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ y, int n) {
    const int tid = threadIdx.x;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = gridDim.x * THREADS;
    float sum = 0.0f;
    // TODO(1): Walk over the n / VEC whole vectors in a grid-stride loop, one 128-bit load of a and one of b per step,
    //   and add the products in registers. (~6 lines)
    // Unrolled: loads of several vectors are in flight at once (nvcc 13.0 for sm_90: four, then four more).
#pragma unroll 4
    for (int v = first; v < n / VEC; v += stride) {
        const float4 a4 = *reinterpret_cast<const float4*>(a + v * VEC);
        const float4 b4 = *reinterpret_cast<const float4*>(b + v * VEC);
        // In pairs: a shorter chain of roundings, and independent additions.
        sum += (a4.x * b4.x + a4.y * b4.y) + (a4.z * b4.z + a4.w * b4.w);
    }
    // END TODO(1)
    // TODO(2): The ragged end: add the products of the n % VEC elements after the last whole vectors too, one thread
    //   per product. No thread may read at or past n. (~1 line)
    if (first < n % VEC) sum += a[n - 1 - first] * b[n - 1 - first];
    // END TODO(2)
    sum = block_reduce_sum(sum);
    if (tid == 0) atomicAdd(y, sum);
}

KATA_EXPORT void dot_product_f32x4(const float* a, const float* b, float* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(float), stream);  // y holds old memory contents; all bits 0 is 0.0f
    if (n == 0) return;                            // a grid of no blocks is an invalid launch
    const int blocks = std::min((n - 1) / (PER_BLOCK * MIN_STEPS) + 1, MAX_BLOCKS);
    dot_product_f32x4_kernel<<<blocks, THREADS, 0, stream>>>(a, b, y, n);
}
