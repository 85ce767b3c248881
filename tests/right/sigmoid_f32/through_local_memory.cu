// eight elements a thread go through an array that registers cannot hold
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return (x < 0.0f ? expf(x) : 1.0f) / (1.0f + expf(-fabsf(x)));
}
__global__ void each(const float* x, float* y, int n) {
    float held[8];
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * 8, count = min(8, n - first);
    for (int i = 0; i < count; ++i) held[i] = x[first + i];
    for (int i = count; --i >= 0;) y[first + i] = f(held[(i + 5 * count) % count]);
}
KATA_EXPORT void sigmoid_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n) each<<<(n + 511) / 512, 64, 0, stream>>>(x, y, n);
}
