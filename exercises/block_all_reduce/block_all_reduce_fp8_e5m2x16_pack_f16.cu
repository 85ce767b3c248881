// block_all_reduce_fp8_e5m2x16_pack_f16: y[0] = sum of all x, 16 e5m2 bytes at a time
//
// Shapes     x: [n] fp8_e5m2, contiguous, 16-byte aligned base, y: [1] f16, any n >= 0; the sum of no elements is 0
// Technique  128-bit loads, conversion in pairs, packed adds in a grid-stride loop; the last block finishes, in half
// New        over block_all_reduce_fp8_e4m3x16_pack_f16: the other format, which has inf
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

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
__device__ __forceinline__ half warp_reduce_sum(half sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
        // A shuffle moves 32-bit registers: the partner's sum travels as its 16 bits.
        const int bits = __shfl_xor_sync(FULL_MASK, __half_as_ushort(sum), offset);
        sum = __hadd(sum, __ushort_as_half(bits));
    }
    return sum;
}

// The sum over the block, in every lane of its first warp. All threads must call it together.
__device__ __forceinline__ half block_reduce_sum(half sum) {
    __shared__ half partial_smem[WARPS];
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // The first warp reads what all the other warps wrote.
    __syncthreads();
    if (warp_id == 0) {
        sum = lane_id < WARPS ? partial_smem[lane_id] : __float2half(0.0f);
        sum = warp_reduce_sum(sum);
    }
    return sum;
}

// The blocks' sums, and how many are stored. Launches that run at the same time would share both.
__device__ half block_sums[MAX_BLOCKS];
__device__ unsigned finished_blocks;  // 0 before and after every launch

__global__ void __launch_bounds__(THREADS)
    block_all_reduce_fp8_e5m2x16_pack_f16_kernel(const __nv_fp8_e5m2* __restrict__ x, half* __restrict__ y, int n) {
    __shared__ bool is_last_smem;
    const int tid = threadIdx.x;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = gridDim.x * THREADS;
    half sum = __float2half(0.0f);
    half2 sum2 = __float2half2_rn(0.0f);  // the sums of the elements with even and with odd index
    // TODO(1): Walk over the n / VEC whole vectors in a grid-stride loop, with LOADS 128-bit loads in flight at once.
    //   Convert two bytes per instruction, and add two halves per instruction. (~17 lines)
    // END TODO(1)
    // TODO(2): The ragged end: add the n % VEC elements after the last whole vector too, one thread per element. No
    //   thread may read at or past n. (~1 line)
    // END TODO(2)
    sum = block_reduce_sum(sum);
    // TODO(3): Let one thread per block store the block's sum, and find out whether all other blocks have stored
    //   theirs. The thread that reads the counter's last value must see all sums. Every launch must find the counter at
    //   0. (~5 lines)
    // END TODO(3)
    // All threads read is_last_smem, and the first warp reads the partial sums, before the block writes new ones.
    __syncthreads();
    if (!is_last_smem) return;
    // TODO(4): The last block adds the sums of all gridDim.x blocks, always in the same order. Each thread adds its
    //   share first. One thread stores the result in y. (~4 lines)
    // END TODO(4)
}

KATA_EXPORT void block_all_reduce_fp8_e5m2x16_pack_f16(const __nv_fp8_e5m2* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) {  // a grid of no blocks is an invalid launch
        cudaMemsetAsync(y, 0, sizeof(half), stream);
        return;
    }
    const int blocks = std::min((n - 1) / (PER_BLOCK * LOADS) + 1, MAX_BLOCKS);
    block_all_reduce_fp8_e5m2x16_pack_f16_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
