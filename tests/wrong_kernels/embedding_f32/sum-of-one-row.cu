// Wrong: sums the rows of a bag that holds one row, from 0 on, which turns -0 into 0
// Kata: embedding_f32
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) embedding_f32_kernel(
    const int64_t* __restrict__ idx,   // [n]
    const float* __restrict__ weight,  // [vocab, dim]
    float* __restrict__ out,           // [n, dim]
    int dim) {
    const int token = blockIdx.x;
    const float* row = weight + idx[token] * dim;
    float* out_row = out + static_cast<int64_t>(token) * dim;
    for (int64_t col = threadIdx.x; col < dim; col += THREADS) out_row[col] = 0.0f + row[col];
}

KATA_EXPORT void embedding_f32(
    const int64_t* idx, const float* weight, float* out, int n, int vocab, int dim, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    embedding_f32_kernel<<<n, THREADS, 0, stream>>>(idx, weight, out, dim);
}
