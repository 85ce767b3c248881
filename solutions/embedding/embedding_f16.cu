// embedding_f16: out[i, :] = weight[idx[i], :], one block per token, one half per thread and step
//
// Shapes     idx: [n] i64 with values in 0..vocab-1, weight: [vocab, dim], out: [n, dim] f16, row-major, contiguous,
//            16-byte aligned bases, any n >= 0, vocab >= 1, dim >= 1
// Technique  a block's threads walk along one row together
// New        over embedding_f32: half the bytes, with as many instructions
// Bound      latency: a thread can load the row only after idx arrives, and a short row leaves most threads idle
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) embedding_f16_kernel(
    const int64_t* __restrict__ idx,  // [n]
    const half* __restrict__ weight,  // [vocab, dim]
    half* __restrict__ out,           // [n, dim]
    int dim) {
    const int token = blockIdx.x;
    // TODO(1): Copy the token's row of weight to its row of out: every column once, neighbouring threads on
    //   neighbouring columns, rows shorter and longer than the block. n * dim and vocab * dim may not fit int.
    //   (~3 lines)
    const half* row = weight + idx[token] * dim;
    half* out_row = out + static_cast<int64_t>(token) * dim;
    for (int64_t col = threadIdx.x; col < dim; col += THREADS) out_row[col] = row[col];
    // END TODO(1)
}

KATA_EXPORT void embedding_f16(
    const int64_t* idx, const half* weight, half* out, int n, int vocab, int dim, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    embedding_f16_kernel<<<n, THREADS, 0, stream>>>(idx, weight, out, dim);
}
