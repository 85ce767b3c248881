// Wrong: the rows of y are stored N apart, as those of x are
// Kata: mat_trans_f32_col2row
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
// Sizes: M=1, N=2
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) mat_trans_f32_col2row_kernel(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [N, M]
    int M, int N) {
    // 64-bit: M and N fit int, their product need not.
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx < static_cast<int64_t>(M) * N) {
        const int64_t row = idx / N;
        const int64_t col = idx % N;
        y[col * N + row] = x[idx];  // BUG
    }
}

KATA_EXPORT void mat_trans_f32_col2row(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int64_t elements = static_cast<int64_t>(M) * N;
    // The x of a grid counts up to 2^31 - 1 blocks: more than any memory has elements for.
    const int blocks = static_cast<int>((elements - 1) / THREADS + 1);
    mat_trans_f32_col2row_kernel<<<blocks, THREADS, 0, stream>>>(x, y, M, N);
}
