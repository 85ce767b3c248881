// three kernels with a scratch of maxima and sums
#include "kata.cuh"
#include <math_constants.h>
#include <cstring>
#include <cmath>

__device__ float combine(float a, float b, bool maximum) {
    return maximum ? (a != a || a > b ? a : b) : a + b;
}
__device__ float over_block(float v, bool maximum) {
    __shared__ float s[64];
    s[threadIdx.x] = v;
    for (int half = 32; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) s[threadIdx.x] = combine(s[threadIdx.x], s[threadIdx.x + half], maximum);
    }
    __syncthreads();
    return s[0];
}
__global__ void maxima(const float* x, float* m, int cols) {
    float v = -INFINITY;
    for (int i = threadIdx.x; i < cols; i += 64) v = combine(x[(size_t)blockIdx.x * cols + i], v, true);
    v = over_block(v, true);
    if (threadIdx.x == 0) m[blockIdx.x] = v;
}
__global__ void sums(const float* x, const float* m, float* s, int cols) {
    float v = 0;
    for (int i = threadIdx.x; i < cols; i += 64) v += expf(x[(size_t)blockIdx.x * cols + i] - m[blockIdx.x]);
    v = over_block(v, false);
    if (threadIdx.x == 0) s[blockIdx.x] = v;
}
__global__ void quotients(const float* x, const float* m, const float* s, float* y, int cols) {
    for (int i = threadIdx.x; i < cols; i += 64) {
        const size_t at = (size_t)blockIdx.x * cols + i;
        y[at] = expf(x[at] - m[blockIdx.x]) / s[blockIdx.x];
    }
}
KATA_EXPORT void safe_softmax_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    float* scratch = nullptr;
    cudaMallocAsync(&scratch, 2 * rows * sizeof(float), stream);
    maxima<<<rows, 64, 0, stream>>>(x, scratch, cols);
    sums<<<rows, 64, 0, stream>>>(x, scratch, scratch + rows, cols);
    quotients<<<rows, 64, 0, stream>>>(x, scratch, scratch + rows, y, cols);
    cudaFreeAsync(scratch, stream);
}
