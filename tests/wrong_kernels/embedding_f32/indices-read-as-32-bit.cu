// Wrong: every second token gets the upper half of an index, which is 0
// Kata: embedding_f32
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=2, vocab=2, dim=1
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) embedding_f32_kernel(
    const int* __restrict__ idx,       // [n]
    const float* __restrict__ weight,  // [vocab, dim]
    float* __restrict__ out,           // [n, dim]
    int dim) {
    const int token = blockIdx.x;
    const float* row = weight + static_cast<int64_t>(idx[token]) * dim;
    float* out_row = out + static_cast<int64_t>(token) * dim;
    for (int64_t col = threadIdx.x; col < dim; col += THREADS) out_row[col] = row[col];
}

KATA_EXPORT void embedding_f32(
    const int64_t* idx, const float* weight, float* out, int n, int vocab, int dim, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    embedding_f32_kernel<<<n, THREADS, 0, stream>>>(reinterpret_cast<const int*>(idx), weight, out, dim);
}
