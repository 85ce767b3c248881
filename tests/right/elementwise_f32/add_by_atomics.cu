// c is a copy of a, to which b is added by atomics
#include "kata.cuh"

__global__ void add(const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(c + i, b[i]);
}
KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    cudaMemcpyAsync(c, a, n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
    if (n) add<<<(n + 127) / 128, 128, 0, stream>>>(b, c, n);
}
