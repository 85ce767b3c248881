// mat_trans_f32_col2row: y = x transposed, one element per thread, coalesced along x
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  threads are numbered along the rows of x: coalesced loads, stores M floats apart
// New        over elementwise_f32: an element has a row and a column, and another place in y than in x
// Bound      memory instructions: a warp's store touches 32 sectors of 32 bytes for 128 bytes of data
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) mat_trans_f32_col2row_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    // 64-bit: M and N fit int, but M * N may not.
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    // TODO(1): Find the row and column of the element of x that this thread moves, and store it where y has it. The
    //   threads of a warp move neighbours of x. The rows of y are M long. Threads past the last element access no
    //   memory. (~5 lines)
    // END TODO(1)
}

KATA_EXPORT void mat_trans_f32_col2row(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int64_t elements = static_cast<int64_t>(M) * N;
    // The x dimension of a grid allows 2^31 - 1 blocks. No memory holds that many blocks of elements.
    const int blocks = static_cast<int>((elements - 1) / THREADS + 1);
    mat_trans_f32_col2row_kernel<<<blocks, THREADS, 0, stream>>>(x, y, M, N);
}
