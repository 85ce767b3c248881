// columns copied by cudaMemcpy2DAsync
#include "kata.cuh"

KATA_EXPORT void mat_trans_f32_row2col(const float* x, float* y, int M, int N, cudaStream_t stream) {
    for (int j = 0; j < N; ++j)
        cudaMemcpy2DAsync(y + (size_t)j * M, 4, x + j, N * 4ull, 4, M, cudaMemcpyDeviceToDevice, stream);
}
