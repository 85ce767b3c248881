// blocks and grids of three dimensions, flattened by hand
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return (x < 0.0f ? expf(x) : 1.0f) / (1.0f + expf(-fabsf(x)));
}
__global__ void each(const float* x, float* y, int n) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned per_block = blockDim.x * blockDim.y * blockDim.z;
    for (unsigned i = block * per_block + thread; i < unsigned(n); i += per_block * gridDim.x * gridDim.y * gridDim.z)
        y[i] = f(x[i]);
}
KATA_EXPORT void sigmoid_f32(const float* x, float* y, int n, cudaStream_t stream) {
    each<<<dim3(2, 3, 2), dim3(5, 7, 3), 0, stream>>>(x, y, n);
}
