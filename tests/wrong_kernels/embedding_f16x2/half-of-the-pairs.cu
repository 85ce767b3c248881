// Wrong: col counts halves, and its end is counted in pairs
// Kata: embedding_f16x2
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=1, vocab=1, dim=4
// Says: never written
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 2;  // halves per access: half2 is 4 bytes

__global__ void __launch_bounds__(THREADS) embedding_f16x2_kernel(
    const int64_t* __restrict__ idx,  // [n]
    const half* __restrict__ weight,  // [vocab, dim]
    half* __restrict__ out,           // [n, dim]
    int dim) {
    const int token = blockIdx.x;
    // dim is a multiple of VEC, so every row of either matrix begins at a multiple of 4 bytes.
    const half* row = weight + idx[token] * dim;
    half* out_row = out + static_cast<int64_t>(token) * dim;
    for (int64_t col = threadIdx.x * VEC; col < dim / VEC; col += THREADS * VEC) {
        *reinterpret_cast<half2*>(out_row + col) = *reinterpret_cast<const half2*>(row + col);
    }
}

KATA_EXPORT void embedding_f16x2(
    const int64_t* idx, const half* weight, half* out, int n, int vocab, int dim, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    embedding_f16x2_kernel<<<n, THREADS, 0, stream>>>(idx, weight, out, dim);
}
