// mat_trans_f32x4_col2row: y = x transposed, four neighbours of x per thread
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, any M, N >= 1
// Technique  one 128-bit load where N is a multiple of 4 (otherwise row bases are not 16-byte aligned, and the thread
//            loads element by element); four stores M floats apart
// New        over mat_trans_f32_col2row: a quarter of the loads; as many stores
// Bound      memory instructions: each store of a warp touches 32 sectors for 128 bytes of data
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int VEC = 4;  // elements per thread: float4 is 16 bytes

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_col2row_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    const int vecs_n = (N - 1) / VEC + 1;  // threads per row of x; the last may own fewer than VEC elements
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx >= static_cast<int64_t>(M) * vecs_n) return;
    // This thread owns x[row, col..col+VEC-1], up to the end of the row.
    const int64_t row = idx / vecs_n;
    const int64_t col = idx % vecs_n * VEC;
    // TODO(1): Where every row of x begins at a multiple of 16 bytes, load the VEC elements at once by 128 bits, and
    //   store each at its place in y. (~6 lines)
    if (N % VEC == 0) {
        const float4 x4 = *reinterpret_cast<const float4*>(x + row * N + col);
        y[(col + 0) * M + row] = x4.x;
        y[(col + 1) * M + row] = x4.y;
        y[(col + 2) * M + row] = x4.z;
        y[(col + 3) * M + row] = x4.w;
    }
    // END TODO(1)
    // TODO(2): For every other N, move the elements one by one. The last thread of a row may own fewer than VEC. The
    //   next row follows them in memory, and belongs to other threads. (~3 lines)
    if (N % VEC != 0) {
        for (int64_t c = col; c < N && c < col + VEC; ++c) y[c * M + row] = x[row * N + c];
    }
    // END TODO(2)
}

KATA_EXPORT void mat_trans_f32x4_col2row(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int64_t vecs = static_cast<int64_t>(M) * ((N - 1) / VEC + 1);
    // The x dimension of a grid allows 2^31 - 1 blocks. No memory holds that many blocks of elements.
    const int blocks = static_cast<int>((vecs - 1) / THREADS + 1);
    mat_trans_f32x4_col2row_kernel<<<blocks, THREADS, 0, stream>>>(x, y, M, N);
}
