// mat_trans_f32_row2col: y = x transposed, one element per thread, coalesced along y
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  threads are numbered along the rows of y: coalesced stores, loads N floats apart
// New        over mat_trans_f32_col2row: the loads are strided instead of the stores
// Bound      memory instructions: a warp's load touches 32 sectors; the caches keep the part that it does not use
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) mat_trans_f32_row2col_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    // 64-bit: M and N fit int, but M * N may not.
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    // TODO(1): Store one element of y. The threads of a warp store neighbours of y. Find the element's row and column,
    //   and load it from where x has it. The rows of x are N long. Threads past the last element access no memory.
    //   (~5 lines)
    if (idx < static_cast<int64_t>(M) * N) {
        const int64_t row = idx % M;  // of x
        const int64_t col = idx / M;
        y[idx] = x[row * N + col];
    }
    // END TODO(1)
}

KATA_EXPORT void mat_trans_f32_row2col(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int64_t elements = static_cast<int64_t>(M) * N;
    // The x dimension of a grid allows 2^31 - 1 blocks. No memory holds that many blocks of elements.
    const int blocks = static_cast<int>((elements - 1) / THREADS + 1);
    mat_trans_f32_row2col_kernel<<<blocks, THREADS, 0, stream>>>(x, y, M, N);
}
