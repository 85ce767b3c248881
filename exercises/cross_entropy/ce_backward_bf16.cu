// ce_backward_bf16: x[row, col] becomes (exp(x[row, col] - lse[row]) - [col = target[row]]) * g[row], in place
//
// Shapes     x: [rows, V] bf16, row-major, contiguous, 16-byte aligned base, target: [rows] i64 in 0..V-1, lse, g:
//            [rows] f32, any rows, V >= 1
// Technique  softmax is recomputed from one number per row; each thread loads LOADS vectors, then stores them
// New        over ce_online_bf16: the gradient of the loss overwrites the logits, and each logit has one owner
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cstdint>
#include <cuda_bf16.h>

constexpr int THREADS = 128;
constexpr int VEC = 8;    // logits in one access of 16 bytes
constexpr int LOADS = 2;  // per thread, in flight at once
constexpr int STEP = LOADS * THREADS;
static_assert(THREADS >= 2 * (VEC - 1), "one thread for each logit before and after the vectors");

// The VEC logits of a vector as floats: a bf16 is the upper half of a float.
__device__ __forceinline__ void unpack(float (&floats)[VEC], const uint4& vector) {
    const uint32_t words[VEC / 2] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i) {
        floats[2 * i] = __uint_as_float(words[i] << 16);
        floats[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000);
    }
}

// VEC floats as a vector, each rounded to bf16.
__device__ __forceinline__ uint4 pack(const float (&floats)[VEC]) {
    alignas(uint4) __nv_bfloat162 pairs[VEC / 2];
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i) pairs[i] = __floats2bfloat162_rn(floats[2 * i], floats[2 * i + 1]);
    return *reinterpret_cast<const uint4*>(pairs);
}

// What all logits of a row share.
struct Row {
    float lse;
    float g;
    int target;  // column
};

// The gradient of the row's loss by the logit of one column.
__device__ __forceinline__ float gradient(float logit, int col, const Row& row) {
    float dx = 0.0f;
    // TODO(1): Recompute the column's share of the softmax, and subtract the one-hot. Multiply in f32. (~3 lines)
    // END TODO(1)
    return dx;
}

// Each row belongs to parts neighbouring blocks. Each of them takes STEP of the row's vectors. x is not __restrict__:
// what is read is what is written.
__global__ void __launch_bounds__(THREADS) ce_backward_bf16_kernel(
    __nv_bfloat16* x, const int64_t* __restrict__ target, const float* __restrict__ lse, const float* __restrict__ g,
    int V, int parts) {
    const int tid = threadIdx.x;
    const int part = blockIdx.x % parts;
    const int64_t first = static_cast<int64_t>(blockIdx.x / parts) * V;  // of x: the row's first logit
    __nv_bfloat16* x_row = x + first;
    const Row row = {lse[blockIdx.x / parts], g[blockIdx.x / parts], static_cast<int>(target[blockIdx.x / parts])};
    const int head = min(V, static_cast<int>((VEC - first % VEC) % VEC));  // logits before the first 16-byte boundary
    const int vectors = (V - head) / VEC;                                  // from there on
    // The first part also has the logits before and after the vectors, at most one per thread.
    const int col = tid < head ? tid : tid + vectors * VEC;
    if (part == 0 && col < V) x_row[col] = __float2bfloat16(gradient(__bfloat162float(x_row[col]), col, row));
    uint4* x_vectors = reinterpret_cast<uint4*>(x_row + head);
    // TODO(2): Replace the logits of vectors part * STEP to (part + 1) * STEP - 1, as far as the row has them, by their
    //   gradient. All loads of a thread come before its first store. No thread may write a logit that another reads or
    //   writes. (~17 lines)
    // END TODO(2)
}

KATA_EXPORT void ce_backward_bf16(
    __nv_bfloat16* x, const int64_t* target, const float* lse, const float* g, int rows, int V, cudaStream_t stream) {
    int parts = 1;  // blocks of each row
    // TODO(3): Each block takes STEP vectors. A row of fewer needs a block, too. (~1 line)
    // END TODO(3)
    ce_backward_bf16_kernel<<<rows * parts, THREADS, 0, stream>>>(x, target, lse, g, V, parts);
}
