// mat_trans_f32x4_row2col: y = x transposed, four neighbours of y per thread
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  four loads N floats apart; one 128-bit store where M is a multiple of 4 (otherwise row bases are not
//            16-byte aligned, and the thread stores element by element)
// New        over mat_trans_f32_row2col: a quarter of the stores, and four independent loads in flight
// Bound      memory instructions: each load of a warp touches 32 sectors for 128 bytes of data
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int VEC = 4;  // elements per thread: float4 is 16 bytes

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_row2col_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    const int vecs_m = (M - 1) / VEC + 1;  // threads per row of y; the last may own fewer than VEC elements
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx >= static_cast<int64_t>(N) * vecs_m) return;
    // This thread owns y[col, row..row+VEC-1], up to the end of the row of y: x[row..row+VEC-1, col].
    const int64_t row = idx % vecs_m * VEC;
    const int64_t col = idx / vecs_m;
    // TODO(1): Where every row of y begins at a multiple of 16 bytes, gather the VEC elements from VEC rows of x, and
    //   store them at once by 128 bits. (~6 lines)
    if (M % VEC == 0) {
        float4 y4;
        y4.x = x[(row + 0) * N + col];
        y4.y = x[(row + 1) * N + col];
        y4.z = x[(row + 2) * N + col];
        y4.w = x[(row + 3) * N + col];
        *reinterpret_cast<float4*>(y + col * M + row) = y4;
    }
    // END TODO(1)
    // TODO(2): For every other M, move the elements one by one. The last thread of a row of y may own fewer than VEC:
    //   x has no rows past M - 1. (~3 lines)
    if (M % VEC != 0) {
        for (int64_t r = row; r < M && r < row + VEC; ++r) y[col * M + r] = x[r * N + col];
    }
    // END TODO(2)
}

KATA_EXPORT void mat_trans_f32x4_row2col(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int64_t vecs = static_cast<int64_t>(N) * ((M - 1) / VEC + 1);
    // The x dimension of a grid allows 2^31 - 1 blocks. No memory holds that many blocks of elements.
    const int blocks = static_cast<int>((vecs - 1) / THREADS + 1);
    mat_trans_f32x4_row2col_kernel<<<blocks, THREADS, 0, stream>>>(x, y, M, N);
}
