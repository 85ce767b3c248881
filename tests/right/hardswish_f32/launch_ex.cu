// cudaLaunchKernelEx with programmatic stream serialisation between two kernels
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return x * (fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f));
}
__global__ void first(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i];
    cudaTriggerProgrammaticLaunchCompletion();
}
__global__ void second(float* y, int n) {
    cudaGridDependencySynchronize();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = f(y[i]);
}
KATA_EXPORT void hardswish_f32(const float* x, float* y, int n, cudaStream_t stream) {
    first<<<1, 256, 0, stream>>>(x, y, n);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(3);
    config.blockDim = dim3(64);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, second, y, n);
}
