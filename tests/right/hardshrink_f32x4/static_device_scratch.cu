// x is copied into a __device__ array from symbol to symbol, part by part
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return fabsf(x) <= 0.5f ? 0.0f : x;
}
constexpr int PART = 512;
__device__ float scratch[PART];
__global__ void each(float* y, int n) {
    if (int(threadIdx.x) < n) y[threadIdx.x] = f(scratch[threadIdx.x]);
}
KATA_EXPORT void hardshrink_f32x4(const float* x, float* y, int n, cudaStream_t stream) {
    for (int i = 0; i < n; i += PART) {
        const int count = n - i < PART ? n - i : PART;
        cudaMemcpyToSymbolAsync(scratch, x + i, count * sizeof(float), 0, cudaMemcpyDeviceToDevice, stream);
        each<<<1, PART, 0, stream>>>(y + i, count);
    }
}
