// pointers in __constant__ memory, uploaded from the host
#include "kata.cuh"

__constant__ const float* inputs[2];
__constant__ float* output;
__global__ void add(int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) output[i] = inputs[0][i] + inputs[1][i];
}
KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    const float* given[] = {a, b};
    cudaMemcpyToSymbolAsync(inputs, given, sizeof given, 0, cudaMemcpyHostToDevice, stream);
    cudaMemcpyToSymbolAsync(output, &c, sizeof c, 0, cudaMemcpyHostToDevice, stream);
    if (n) add<<<(n + 127) / 128, 128, 0, stream>>>(n);
}
