// block_all_reduce_bf16x8_pack_bf16: y[0] = sum of all x, eight bfloat16 at a time
//
// Shapes     x: [n] bf16, contiguous, 16-byte aligned base, y: [1] bf16, any n >= 0; the sum of no elements is 0
// Technique  128-bit loads and packed adds in a grid-stride loop; the last block adds the blocks' sums, in bfloat16
// New        over block_all_reduce_f16x8_pack_f16: bfloat16, which rounds to 8 bits
// Bound      memory bandwidth
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
__device__ __forceinline__ __nv_bfloat16 warp_reduce_sum(__nv_bfloat16 sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
        // A shuffle moves 32-bit registers: the partner's sum travels as its 16 bits.
        const int bits = __shfl_xor_sync(FULL_MASK, __bfloat16_as_ushort(sum), offset);
        sum = __hadd(sum, __ushort_as_bfloat16(bits));
    }
    return sum;
}

// The sum over the block, in every lane of its first warp. All threads must call it together.
__device__ __forceinline__ __nv_bfloat16 block_reduce_sum(__nv_bfloat16 sum) {
    __shared__ __nv_bfloat16 partial_smem[WARPS];
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // The first warp reads what all the other warps wrote.
    __syncthreads();
    if (warp_id == 0) {
        sum = lane_id < WARPS ? partial_smem[lane_id] : __float2bfloat16(0.0f);
        sum = warp_reduce_sum(sum);
    }
    return sum;
}

// The blocks' sums, and how many are stored. Launches that run at the same time would share both.
__device__ __nv_bfloat16 block_sums[MAX_BLOCKS];
__device__ unsigned finished_blocks;  // 0 before and after every launch

__global__ void __launch_bounds__(THREADS) block_all_reduce_bf16x8_pack_bf16_kernel(
    const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ y, int n) {
    __shared__ bool is_last_smem;
    const int tid = threadIdx.x;
    const int first = blockIdx.x * THREADS + tid;  // this thread's place in the grid
    const int stride = gridDim.x * THREADS;
    __nv_bfloat16 sum = __float2bfloat16(0.0f);
    __nv_bfloat162 sum2 = __float2bfloat162_rn(0.0f);  // the sums of the elements with even and with odd index
    // TODO(1): Walk over the n / VEC whole vectors in a grid-stride loop, with LOADS 128-bit loads in flight at once.
    //   Add them in the thread's own registers, two bfloat16 per instruction. (~14 lines)
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

KATA_EXPORT void block_all_reduce_bf16x8_pack_bf16(
    const __nv_bfloat16* x, __nv_bfloat16* y, int n, cudaStream_t stream) {
    if (n == 0) {  // a grid of no blocks is an invalid launch
        cudaMemsetAsync(y, 0, sizeof(__nv_bfloat16), stream);
        return;
    }
    const int blocks = std::min((n - 1) / (PER_BLOCK * LOADS) + 1, MAX_BLOCKS);
    block_all_reduce_bf16x8_pack_bf16_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
