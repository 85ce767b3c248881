// embedding_f32: out[i, :] = weight[idx[i], :], one block per token, one float per thread and step
//
// Shapes     idx: [n] i64 with values in 0..vocab-1, weight: [vocab, dim], out: [n, dim] f32, row-major, contiguous,
//            16-byte aligned bases, any n >= 0, vocab >= 1, dim >= 1
// Technique  a block's threads walk along one row together
// New        over elementwise_f32: the data decide which row is read: a gather
// Bound      latency: a thread can load the row only after idx arrives, and a short row leaves most threads idle
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) embedding_f32_kernel(
    const int64_t* __restrict__ idx,   // [n]
    const float* __restrict__ weight,  // [vocab, dim]
    float* __restrict__ out,           // [n, dim]
    int dim) {
    const int token = blockIdx.x;
    // TODO(1): Copy the token's row of weight to its row of out: every column once, neighbouring threads on
    //   neighbouring columns, rows shorter and longer than the block. n * dim and vocab * dim may not fit int.
    //   (~3 lines)
    // END TODO(1)
}

KATA_EXPORT void embedding_f32(
    const int64_t* idx, const float* weight, float* out, int n, int vocab, int dim, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    embedding_f32_kernel<<<n, THREADS, 0, stream>>>(idx, weight, out, dim);
}
