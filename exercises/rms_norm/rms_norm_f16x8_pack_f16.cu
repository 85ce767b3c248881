// rms_norm_f16x8_pack_f16: y[row, col] = x[row, col] / sqrt(mean of x^2 over the row + eps) * weight[col]
//
// Shapes     x, y: [rows, cols], weight: [cols] f16, row-major, contiguous, 16-byte aligned bases, any rows >= 1, cols
//            in 1..16384
// Technique  128-bit loads of up to 32 halves per thread, packed half arithmetic in registers, 128-bit stores
// New        over rms_norm_f16x8_f16: a quarter of the memory instructions; the row is read from memory once
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int WARP_SIZE = 32;
constexpr int MAX_WARPS = 16;
constexpr int MAX_THREADS = MAX_WARPS * WARP_SIZE;
constexpr int HELD = 32;  // elements of the row that a thread keeps in registers
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(MAX_WARPS <= WARP_SIZE, "one warp adds the partial sums of all warps");
static_assert(MAX_THREADS * HELD >= 16384, "the largest block holds the longest row");

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

// The sum over the block's threads, in every thread. All threads must call it together, and only once per kernel: a
// second call would overwrite partial sums that a slow warp may still read.
__device__ __forceinline__ half block_reduce_sum(half sum, half* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : half(0.0f));
    return sum;
}

// Pack is the type of one access. Its VEC elements divide cols: a row holds only whole vectors, and every row starts at
// a multiple of its size.
template <typename Pack>
__global__ void __launch_bounds__(MAX_THREADS, 2)  // 64 registers at most: one block loads while the other computes
    rms_norm_f16x8_pack_f16_kernel(
        const half* __restrict__ x, const half* __restrict__ weight, half* __restrict__ y, int cols, float eps) {
    constexpr int VEC = sizeof(Pack) / sizeof(half);
    __shared__ half partial_smem[MAX_WARPS];
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const half* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    half* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    // Two halves per register. Registers past the row hold 0.
    alignas(16) half2 x_rmem[HELD / 2] = {};
    alignas(16) half2 weight_rmem[HELD / 2] = {};
    // TODO(1): global -> registers: HELD elements per thread of x and weight, VEC elements per access of type Pack.
    //   Neighbouring threads load neighbouring vectors. Unrolling must make every index into a register array a
    //   constant. (~7 lines)
    // END TODO(1)
    half2 sum = __half2half2(half(0.0f));
    // TODO(2): Sum the squares of the elements that this thread holds, in half, two per instruction. (~2 lines)
    // END TODO(2)
    const half total = block_reduce_sum(__hadd(__low2half(sum), __high2half(sum)), partial_smem);
    const half2 scale = __float2half2_rn(rsqrtf(__half2float(total) / cols + eps));
    // TODO(3): Compute the output in the registers, two elements per instruction. Store VEC elements per access of type
    //   Pack, nothing past the row. (~9 lines)
    // END TODO(3)
}

KATA_EXPORT void rms_norm_f16x8_pack_f16(
    const half* x, const half* weight, half* y, int rows, int cols, float eps, cudaStream_t stream) {
    // One block per row, with just enough warps to hold the row.
    const int warps = (cols - 1) / (WARP_SIZE * HELD) + 1;
    // All rows start at a multiple of 16 bytes only if 8 divides cols.
    if (cols % 8 == 0) {
        rms_norm_f16x8_pack_f16_kernel<uint4><<<rows, warps * WARP_SIZE, 0, stream>>>(x, weight, y, cols, eps);
    } else {
        rms_norm_f16x8_pack_f16_kernel<half><<<rows, warps * WARP_SIZE, 0, stream>>>(x, weight, y, cols, eps);
    }
}
