// ce_forward_bf16: loss[row] = log(sum of exp(x[row, :])) - x[row, target[row]], the loss of a language model
//
// Shapes     x: [rows, V] bf16, row-major, contiguous, 16-byte aligned base, target: [rows] i64 in 0..V-1, loss: [rows]
//            f32, any rows, V >= 1
// Technique  one block per row; a pass for the maximum, then one from the row's end for the sum; both by 128-bit loads
//            from the first 16-byte boundary in the row to the last
// New        over safe_softmax_f32: nothing is stored except one number per row, and rows may start at any element
// Bound      memory bandwidth, as long as the second pass finds the row in L2
#include "kata.cuh"
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cuda_bf16.h>

constexpr int THREADS = 1024;  // two blocks per SM: the fewer rows are in flight, the more of them L2 holds
constexpr int VEC = 8;         // logits in one access of 16 bytes
constexpr int LOADS = 2;       // per thread, in flight at once
constexpr int STEP = LOADS * THREADS;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");
static_assert(THREADS >= 2 * (VEC - 1), "one thread for each logit before and after the vectors");

struct Add {
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
    __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// The lanes' values combined by op, in every lane. All 32 lanes must call it together.
template <typename Op>
__device__ __forceinline__ float warp_reduce(float value, Op op) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        value = op(value, __shfl_xor_sync(FULL_MASK, value, offset));
    return value;
}

// The threads' values combined by op, in every thread. op(neutral, x) is x. All threads must call it together.
template <typename Op>
__device__ __forceinline__ float block_reduce(float value, float neutral, float* partial_smem, Op op) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    value = warp_reduce(value, op);
    // A slow warp may still read the partial results of the call before.
    __syncthreads();
    if (lane_id == 0) partial_smem[warp_id] = value;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    value = warp_reduce(lane_id < WARPS ? partial_smem[lane_id] : neutral, op);
    return value;
}

// The VEC logits of a vector as floats: a bf16 is the upper half of a float.
__device__ __forceinline__ void unpack(float (&floats)[VEC], const uint4& vector) {
    const uint32_t words[VEC / 2] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i) {
        floats[2 * i] = __uint_as_float(words[i] << 16);
        floats[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000);
    }
}

// global -> registers: vectors v, v + THREADS, ... of a row's vectors, LOADS in all; logits of -inf past the last.
__device__ __forceinline__ void load_vectors(uint4 (&x_rmem)[LOADS], const uint4* x_vectors, int v, int vectors) {
    constexpr unsigned NOTHING = 0xff80ff80;  // two bf16 of -inf
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        x_rmem[i] = make_uint4(NOTHING, NOTHING, NOTHING, NOTHING);
        if (v + i * THREADS < vectors) x_rmem[i] = x_vectors[v + i * THREADS];
    }
}

// The same vectors, read for the last time: the caches evict them first.
__device__ __forceinline__ void load_last(uint4 (&x_rmem)[LOADS], const uint4* x_vectors, int v, int vectors) {
    constexpr unsigned NOTHING = 0xff80ff80;
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        x_rmem[i] = make_uint4(NOTHING, NOTHING, NOTHING, NOTHING);
        if (v + i * THREADS < vectors) x_rmem[i] = __ldcs(x_vectors + v + i * THREADS);
    }
}

// The maximum of the logits of a batch, two per instruction. A nan is dropped here; it stays in the sum.
__device__ __forceinline__ float max_of(const uint4 (&x_rmem)[LOADS]) {
    __nv_bfloat162 most = __float2bfloat162_rn(-INFINITY);
#pragma unroll
    for (const uint4& vector : x_rmem) {
        const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&vector);
#pragma unroll
        for (int i = 0; i < VEC / 2; ++i) most = __hmax2(most, pairs[i]);
    }
    return fmaxf(__low2float(most), __high2float(most));
}

__global__ void __launch_bounds__(THREADS) ce_forward_bf16_kernel(
    const __nv_bfloat16* __restrict__ x, const int64_t* __restrict__ target, float* __restrict__ loss, int V) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * V;  // of x: the row's first logit
    const __nv_bfloat16* x_row = x + first;
    // The one logit that is gathered, asked for before the row.
    const float x_target = tid == 0 ? __bfloat162float(x_row[target[blockIdx.x]]) : 0.0f;
    int head = 0;     // logits before the first 16-byte boundary
    int vectors = 0;  // of VEC logits each, from there on
    // TODO(1): Set both. x itself is aligned, and the row begins at its element first. The row may end before the
    //   boundary. (~2 lines)
    // END TODO(1)
    const uint4* x_vectors = reinterpret_cast<const uint4*>(x_row + head);
    // The logits before and after the vectors, at most one per thread.
    const int col = tid < head ? tid : tid + vectors * VEC;
    const float x_edge = col < V ? __bfloat162float(x_row[col]) : -INFINITY;
    // The lowest float stands in for -inf, because -inf - -inf is nan, not 0.
    float max = fmaxf(-FLT_MAX, x_edge);
    // TODO(2): Find the maximum of the row's logits, in every thread. (~6 lines)
    // END TODO(2)
    float sum = __expf(x_edge - max);
    // TODO(3): Add the exponentials of all logits minus the maximum. Take the vectors in steps of STEP again, but the
    //   last step first: L2 still has what was read last. (~11 lines)
    // END TODO(3)
    // TODO(4): One thread stores the row's loss. It must be right where exp of the target's logit is 0 or infinite, and
    //   a row whose logits are all near 10 000 must not lose its digits. (~1 line)
    // END TODO(4)
}

KATA_EXPORT void ce_forward_bf16(
    const __nv_bfloat16* x, const int64_t* target, float* loss, int rows, int V, cudaStream_t stream) {
    // One block per row. The x of a grid can count them all.
    ce_forward_bf16_kernel<<<rows, THREADS, 0, stream>>>(x, target, loss, V);
}
