// Wrong: row i of weight goes to row idx[i] of out
// Kata: embedding_f16
// Sim: out of bounds
// Gpu: wrong answer
// Line: // BUG
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
    const half* row = weight + static_cast<int64_t>(token) * dim;
    half* out_row = out + idx[token] * dim;
    for (int64_t col = threadIdx.x; col < dim; col += THREADS) {
        out_row[col] = row[col];  // BUG
    }
}

KATA_EXPORT void embedding_f16(
    const int64_t* idx, const half* weight, half* out, int n, int vocab, int dim, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    embedding_f16_kernel<<<n, THREADS, 0, stream>>>(idx, weight, out, dim);
}
