// Wrong: blocks start one token apart instead of eight: they overlap, and the last tokens have no block
// Kata: embedding_f16x8
// Sim: race
// Gpu: wrong answer
// Says: race|never written
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int ROWS = 8;  // tokens of a block

__global__ void __launch_bounds__(THREADS) embedding_f16x8_kernel(
    const int64_t* __restrict__ idx,  // [n]
    const half* __restrict__ weight,  // [vocab, dim]
    half* __restrict__ out,           // [n, dim]
    int n, int dim) {
    const int first = blockIdx.x;
    const half* row[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int token = first + r;
        if (token < n) row[r] = weight + idx[token] * dim;
    }
    for (int64_t col = threadIdx.x; col < dim; col += THREADS) {
        half row_rmem[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (first + r < n) row_rmem[r] = row[r][col];
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int token = first + r;
            if (token < n) out[static_cast<int64_t>(token) * dim + col] = row_rmem[r];
        }
    }
}

KATA_EXPORT void embedding_f16x8(
    const int64_t* idx, const half* weight, half* out, int n, int vocab, int dim, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / ROWS + 1;
    embedding_f16x8_kernel<<<blocks, THREADS, 0, stream>>>(idx, weight, out, n, dim);
}
