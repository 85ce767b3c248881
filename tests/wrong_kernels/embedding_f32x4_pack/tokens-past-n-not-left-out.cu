// Wrong: the last block copies rows for tokens that do not exist
// Kata: embedding_f32x4_pack
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: n=1, vocab=1, dim=4
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 512;
constexpr int VEC = 4;   // floats per access: float4 is 16 bytes
constexpr int ROWS = 2;  // tokens of a thread, blockDim.y apart

__global__ void __launch_bounds__(THREADS) embedding_f32x4_pack_kernel(
    const int64_t* __restrict__ idx,   // [n]
    const float* __restrict__ weight,  // [vocab, dim]
    float* __restrict__ out,           // [n, dim]
    int n, int dim) {
    // The threads of one threadIdx.y copy rows for tokens first and first + blockDim.y, at most 2^31 - 1.
    const int first = blockIdx.x * (blockDim.y * ROWS) + threadIdx.y;
    const float* row[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int token = first + r * blockDim.y;
        row[r] = weight + idx[token] * dim;  // BUG
    }
    // dim is a multiple of VEC, so every row of either matrix begins at a multiple of 16 bytes.
    for (int64_t col = threadIdx.x * VEC; col < dim; col += blockDim.x * VEC) {
        float4 row_rmem[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int token = first + r * blockDim.y;
            row_rmem[r] = *reinterpret_cast<const float4*>(row[r] + col);
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int token = first + r * blockDim.y;
            float* out_row = out + static_cast<int64_t>(token) * dim;
            *reinterpret_cast<float4*>(out_row + col) = row_rmem[r];
        }
    }
}

// Just enough threads for the vectors of a row: then one instruction takes a short row whole. A power of two, so that
// it divides THREADS.
static int threads_along_row(int dim) {
    int threads = 1;
    while (threads < THREADS && threads * VEC < dim) threads *= 2;
    return threads;
}

KATA_EXPORT void embedding_f32x4_pack(
    const int64_t* idx, const float* weight, float* out, int n, int vocab, int dim, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const dim3 threads(threads_along_row(dim), THREADS / threads_along_row(dim));
    const int tokens = threads.y * ROWS;  // of one block
    const int blocks = (n - 1) / tokens + 1;
    embedding_f32x4_pack_kernel<<<blocks, threads, 0, stream>>>(idx, weight, out, n, dim);
}
