// each block copies its part into memory that it takes with new
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return x > 0.0f ? x : expm1f(x);
}
__global__ void part(const float* x, float* y, int n) {
    __shared__ float* held;
    if (threadIdx.x == 0) held = new float[128];
    __syncthreads();
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) held[127 - threadIdx.x] = x[i];
    __syncthreads();
    if (i < n) y[i] = f(held[127 - threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) delete[] held;
}
KATA_EXPORT void elu_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n) part<<<(n + 127) / 128, 128, 0, stream>>>(x, y, n);
}
