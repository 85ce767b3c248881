// a block a row; the sum by syncthreads and shared memory of unusual size
#include "kata.cuh"

__global__ void rowwise(const float* x, const float* w, float* y, int cols, float eps) {
    __shared__ float s[97];
    float sum = 0;
    for (int i = threadIdx.x; i < cols; i += 97)
        sum += x[(size_t)blockIdx.x * cols + i] * x[(size_t)blockIdx.x * cols + i];
    s[threadIdx.x] = sum;
    __syncthreads();
    for (int count = 97; count > 1; count = (count + 1) / 2) {
        const int half = (count + 1) / 2;
        if (threadIdx.x < count / 2) s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    const float scale = rsqrtf(s[0] / cols + eps);
    for (int i = threadIdx.x; i < cols; i += 97)
        y[(size_t)blockIdx.x * cols + i] = x[(size_t)blockIdx.x * cols + i] * scale * w[i];
}
KATA_EXPORT void rms_norm_f32(
    const float* x, const float* weight, float* y, int rows, int cols, float eps, cudaStream_t stream) {
    rowwise<<<rows, 97, 0, stream>>>(x, weight, y, cols, eps);
}
