// blocks of a single thread, a grid of two dimensions
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return x > 0.0f ? x : expm1f(x);
}
__global__ void one(const float* x, float* y, int n) {
    const int i = blockIdx.y * gridDim.x + blockIdx.x;
    if (i < n) y[i] = f(x[i]);
}
KATA_EXPORT void elu_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n) one<<<dim3(61, (n + 60) / 61), 1, 0, stream>>>(x, y, n);
}
