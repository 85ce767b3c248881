// embedding_f32x4_pack: out[i, :] = weight[idx[i], :], four floats per access
//
// Shapes     idx: [n] i64 with values in 0..vocab-1, weight: [vocab, dim], out: [n, dim] f32, row-major, contiguous,
//            16-byte aligned bases, any n >= 0, vocab >= 1, dim >= 4 a multiple of 4
// Technique  two independent 128-bit loads from two rows, then two stores; threadIdx.y counts rows
// New        over embedding_f32x4: four floats per access; a block is at most as wide as a row, and covers several rows
// Bound      memory bandwidth, for rows of 256 bytes and more
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 512;
constexpr int VEC = 4;   // floats per access: float4 is 16 bytes
constexpr int ROWS = 2;  // tokens per thread, blockDim.y apart

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
        if (token < n) row[r] = weight + idx[token] * dim;
    }
    // dim is a multiple of VEC, so every row of either matrix begins at a multiple of 16 bytes.
    for (int64_t col = threadIdx.x * VEC; col < dim; col += blockDim.x * VEC) {
        float4 row_rmem[ROWS];
        // TODO(1): global -> registers: load VEC columns from col on of all ROWS rows, with one 128-bit load each. No
        //   load waits for another. A token at or past n has no row. (~4 lines)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int token = first + r * blockDim.y;
            if (token < n) row_rmem[r] = *reinterpret_cast<const float4*>(row[r] + col);
        }
        // END TODO(1)
        // TODO(2): registers -> global: store the loaded values to the tokens' rows of out, with one 128-bit store
        //   each. Store nothing for a token at or past n. An offset into out may not fit int. (~5 lines)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int token = first + r * blockDim.y;
            float* out_row = out + static_cast<int64_t>(token) * dim;
            if (token < n) *reinterpret_cast<float4*>(out_row + col) = row_rmem[r];
        }
        // END TODO(2)
    }
}

// Just enough threads for the vectors of a row, so that one instruction covers a short row. A power of two, so that it
// divides THREADS.
static int threads_along_row(int dim) {
    int threads = 1;
    while (threads < THREADS && threads * VEC < dim) threads *= 2;
    return threads;
}

KATA_EXPORT void embedding_f32x4_pack(
    const int64_t* idx, const float* weight, float* out, int n, int vocab, int dim, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const dim3 threads(threads_along_row(dim), THREADS / threads_along_row(dim));
    const int tokens = threads.y * ROWS;  // per block
    const int blocks = (n - 1) / tokens + 1;
    embedding_f32x4_pack_kernel<<<blocks, threads, 0, stream>>>(idx, weight, out, n, dim);
}
