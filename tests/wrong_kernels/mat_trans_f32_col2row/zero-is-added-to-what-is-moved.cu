// Wrong: adds 0 to what it moves, which turns -0 into 0
// Kata: mat_trans_f32_col2row
// Sim: wrong answer
// Gpu: wrong answer
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
        y[col * M + row] = x[idx] + 0.0f;
    }
}

KATA_EXPORT void mat_trans_f32_col2row(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int64_t elements = static_cast<int64_t>(M) * N;
    // The x of a grid counts up to 2^31 - 1 blocks: more than any memory has elements for.
    const int blocks = static_cast<int>((elements - 1) / THREADS + 1);
    mat_trans_f32_col2row_kernel<<<blocks, THREADS, 0, stream>>>(x, y, M, N);
}
