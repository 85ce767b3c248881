// a thread a row, x through shared memory in parts
#include "kata.cuh"

__global__ void rowwise(const float* A, const float* x, float* y, int M, int K) {
    __shared__ float part[64];
    const int row = blockIdx.x * 64 + threadIdx.x;
    float sum = 0;
    for (int first = 0; first < K; first += 64) {
        __syncthreads();
        if (first + threadIdx.x < K) part[threadIdx.x] = x[first + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < 64 && first + k < K; ++k)
            if (row < M) sum += A[(size_t)row * K + first + k] * part[k];
    }
    if (row < M) y[row] = sum;
}
KATA_EXPORT void sgemv_k32_f32(const float* A, const float* x, float* y, int M, int K, cudaStream_t stream) {
    if (M) rowwise<<<(M + 63) / 64, 64, 0, stream>>>(A, x, y, M, K);
}
