// occupancy, properties and pointer attributes decide the launch
#include "kata.cuh"

__global__ void add(const float* a, const float* b, float* c, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + b[i];
}
KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    int blocks = 0, threads = 0;
    cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, add, 0, 256);
    cudaPointerAttributes attributes;
    cudaPointerGetAttributes(&attributes, c);
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    if (attributes.type != cudaMemoryTypeDevice || properties.warpSize != 32) return;
    if (blocks > 8) blocks = 8;
    add<<<blocks, threads, 0, stream>>>(a, b, c, n);
}
