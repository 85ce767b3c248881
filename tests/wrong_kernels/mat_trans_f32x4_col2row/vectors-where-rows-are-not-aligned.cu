// Wrong: vectors are loaded wherever four elements are left in the row, whatever the row begins at
// Kata: mat_trans_f32x4_col2row
// Sim: misaligned
// Gpu: misaligned
// Line: // BUG
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int VEC = 4;  // elements per thread: float4 is 16 bytes

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_col2row_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    const int vecs_n = (N - 1) / VEC + 1;  // threads to a row of x; the last may own fewer than VEC elements
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx >= static_cast<int64_t>(M) * vecs_n) return;
    // This thread owns x[row, col..col+VEC-1], as far as the row goes.
    const int64_t row = idx / vecs_n;
    const int64_t col = idx % vecs_n * VEC;
    if (N - col >= VEC) {
        const float4 x4 = *reinterpret_cast<const float4*>(x + row * N + col);  // BUG
        y[(col + 0) * M + row] = x4.x;
        y[(col + 1) * M + row] = x4.y;
        y[(col + 2) * M + row] = x4.z;
        y[(col + 3) * M + row] = x4.w;
    }
    if (N - col < VEC) {
        for (int64_t c = col; c < N && c < col + VEC; ++c) y[c * M + row] = x[row * N + c];
    }
}

KATA_EXPORT void mat_trans_f32x4_col2row(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int64_t vecs = static_cast<int64_t>(M) * ((N - 1) / VEC + 1);
    // The x of a grid counts up to 2^31 - 1 blocks: more than any memory has elements for.
    const int blocks = static_cast<int>((vecs - 1) / THREADS + 1);
    mat_trans_f32x4_col2row_kernel<<<blocks, THREADS, 0, stream>>>(x, y, M, N);
}
