// one block of 1024 threads goes through all of it
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return x < 0.0f ? 0.0f : x;
}
__global__ void __launch_bounds__(1024, 2) all(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = f(x[i]);
}
KATA_EXPORT void relu_f32(const float* x, float* y, int n, cudaStream_t stream) {
    all<<<1, 1024, 0, stream>>>(x, y, n);
}
