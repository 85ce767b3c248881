// Wrong: the four elements of a thread lie side by side in one row, so threads overlap and three rows have none
// Kata: embedding_f32x4
// Sim: race
// Gpu: wrong answer
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int ROWS = 4;  // tokens of a block

__global__ void __launch_bounds__(THREADS) embedding_f32x4_kernel(
    const int64_t* __restrict__ idx,   // [n]
    const float* __restrict__ weight,  // [vocab, dim]
    float* __restrict__ out,           // [n, dim]
    int n, int dim) {
    const int first = blockIdx.x * ROWS;  // this block copies rows for tokens first..first+ROWS-1, at most 2^31 - 1
    const float* row[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int token = first + r;
        if (token < n) row[r] = weight + idx[token] * dim;
    }
    for (int64_t col = threadIdx.x; col < dim; col += THREADS) {
        float row_rmem[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (col + r < dim) row_rmem[r] = row[0][col + r];
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (col + r < dim) out[static_cast<int64_t>(first) * dim + col + r] = row_rmem[r];
        }
    }
}

KATA_EXPORT void embedding_f32x4(
    const int64_t* idx, const float* weight, float* out, int n, int vocab, int dim, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / ROWS + 1;
    embedding_f32x4_kernel<<<blocks, THREADS, 0, stream>>>(idx, weight, out, n, dim);
}
