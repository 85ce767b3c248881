// Wrong: where M is not a multiple of 4, only whole vectors are moved
// Kata: mat_trans_f32x4_row2col
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: M=1, N=1
// Says: never written
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int VEC = 4;  // elements per thread: float4 is 16 bytes

__global__ void __launch_bounds__(THREADS) mat_trans_f32x4_row2col_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    const int vecs_m = (M - 1) / VEC + 1;  // threads to a row of y; the last may own fewer than VEC elements
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx >= static_cast<int64_t>(N) * vecs_m) return;
    // This thread owns y[col, row..row+VEC-1], as far as the row of y goes: x[row..row+VEC-1, col].
    const int64_t row = idx % vecs_m * VEC;
    const int64_t col = idx / vecs_m;
    if (M % VEC == 0) {
        float4 y4;
        y4.x = x[(row + 0) * N + col];
        y4.y = x[(row + 1) * N + col];
        y4.z = x[(row + 2) * N + col];
        y4.w = x[(row + 3) * N + col];
        *reinterpret_cast<float4*>(y + col * M + row) = y4;
    }
    if (M % VEC != 0) {
        for (int64_t r = row; row + VEC <= M && r < row + VEC; ++r) y[col * M + r] = x[r * N + col];
    }
}

KATA_EXPORT void mat_trans_f32x4_row2col(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int64_t vecs = static_cast<int64_t>(N) * ((M - 1) / VEC + 1);
    // The x of a grid counts up to 2^31 - 1 blocks: more than any memory has elements for.
    const int blocks = static_cast<int>((vecs - 1) / THREADS + 1);
    mat_trans_f32x4_row2col_kernel<<<blocks, THREADS, 0, stream>>>(x, y, M, N);
}
