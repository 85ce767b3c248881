// block_all_reduce_i8x16_pack_i32: y[0] = sum of all x, 16 signed bytes at a time
//
// Shapes     x: [n] i8, contiguous, 16-byte aligned base, y: [1] i32, any n >= 0 whose sum fits int: all up
//            to 2^24 do; the sum of none is 0
// Technique  128-bit loads and four-byte dot products with ones in a grid-stride loop, then the block reduction
// New        over block_all_reduce_i8_i32: 16 bytes per load, four bytes per addition, and the loop of f16x8_pack_f32
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <algorithm>

constexpr int THREADS = 256;
constexpr int VEC = 16;                   // elements per thread and step: 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block and step
constexpr int LOADS = 4;                  // per thread, in flight at once; a block has work for at least one such round
constexpr int MAX_BLOCKS = 2048;          // two waves on 132 SMs with 8 blocks each
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp adds the partial sums of all warps");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ int warp_reduce_sum(int sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    block_all_reduce_i8x16_pack_i32_kernel(const int8_t* __restrict__ x, int* __restrict__ y, int n) {
    __shared__ int partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = gridDim.x * THREADS;
    int sum = 0;
    constexpr int ONES = 0x01010101;  // four bytes, each 1
    // TODO(1): Walk over the n / VEC whole vectors in a grid-stride loop, with LOADS 128-bit loads in flight at once.
    //   Add in the thread's own register: four signed bytes per instruction, as a product with four ones. (~14 lines)
    for (int v = first; v < n / VEC; v += LOADS * stride) {
        // All loads come before the first addition: nvcc moves no load across the inline assembly of __dp4a. Where no
        // vector is left, the thread adds zeros.
        int4 x_rmem[LOADS] = {};
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int at = v + i * stride;
            if (at < n / VEC) x_rmem[i] = *reinterpret_cast<const int4*>(x + at * VEC);
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            sum = __dp4a(x_rmem[i].x, ONES, sum);
            sum = __dp4a(x_rmem[i].y, ONES, sum);
            sum = __dp4a(x_rmem[i].z, ONES, sum);
            sum = __dp4a(x_rmem[i].w, ONES, sum);
        }
    }
    // END TODO(1)
    // TODO(2): The ragged end: add the n % VEC elements after the last whole vector too, one thread per element. No
    //   thread may read at or past n. (~1 line)
    if (first < n % VEC) sum += x[n - 1 - first];
    // END TODO(2)
    // TODO(3): registers -> shared -> y: one partial sum per warp. The first warp adds them, with all its lanes in the
    //   shuffles. One thread of the block adds the block's sum to y. No thread may read a partial sum before it has
    //   been written. (~8 lines)
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // The first warp reads what all the other warps wrote.
    __syncthreads();
    if (warp_id == 0) {
        sum = lane_id < WARPS ? partial_smem[lane_id] : 0;
        sum = warp_reduce_sum(sum);
        if (lane_id == 0) atomicAdd(y, sum);
    }
    // END TODO(3)
}

KATA_EXPORT void block_all_reduce_i8x16_pack_i32(const int8_t* x, int* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(int), stream);  // y holds old memory contents
    if (n == 0) return;                          // a grid of no blocks is an invalid launch
    const int blocks = std::min((n - 1) / (PER_BLOCK * LOADS) + 1, MAX_BLOCKS);
    block_all_reduce_i8x16_pack_i32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
