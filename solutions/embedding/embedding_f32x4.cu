// embedding_f32x4: out[i, :] = weight[idx[i], :], one block per four tokens, four floats per thread and step
//
// Shapes     idx: [n] i64 with values in 0..vocab-1, weight: [vocab, dim], out: [n, dim] f32, row-major, contiguous,
//            16-byte aligned bases, any n >= 0, vocab >= 1, dim >= 1
// Technique  a block's threads walk along four rows at once: four independent 32-bit loads, then four stores
// New        over embedding_f32: a quarter of the blocks; four indices, then four elements, in flight at once
// Bound      memory instructions, a load and a store for 4 bytes; short rows leave most threads without a column
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int ROWS = 4;  // tokens per block

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
        // TODO(1): global -> registers: load column col of all ROWS rows. No load waits for another. A token at or past
        //   n has no row. (~3 lines)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (first + r < n) row_rmem[r] = row[r][col];
        }
        // END TODO(1)
        // TODO(2): registers -> global: store the loaded values to the tokens' rows of out. Store nothing for a token
        //   at or past n. An offset into out may not fit int. (~4 lines)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int token = first + r;
            if (token < n) out[static_cast<int64_t>(token) * dim + col] = row_rmem[r];
        }
        // END TODO(2)
    }
}

KATA_EXPORT void embedding_f32x4(
    const int64_t* idx, const float* weight, float* out, int n, int vocab, int dim, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / ROWS + 1;
    embedding_f32x4_kernel<<<blocks, THREADS, 0, stream>>>(idx, weight, out, n, dim);
}
