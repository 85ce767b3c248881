// through dynamic shared memory with a stride of its own, written by rows and read by columns
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return fabsf(x) <= 0.5f ? 0.0f : x;
}
__global__ void each(const float* x, float* y, int n) {
    extern __shared__ float tile[];
    const int first = blockIdx.x * 256, row = threadIdx.x / 16, col = threadIdx.x % 16;
    if (first + int(threadIdx.x) < n) tile[row * 17 + col] = x[first + threadIdx.x];
    __syncthreads();
    if (const int i = first + col * 16 + row; i < n) y[i] = f(tile[col * 17 + row]);
}
KATA_EXPORT void hardshrink_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n) each<<<(n + 255) / 256, 256, 16 * 17 * sizeof(float), stream>>>(x, y, n);
}
