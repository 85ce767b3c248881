// the function is called through a table of pointers in constant memory
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return x / (1.0f + expf(-1.5957691216f * x * fmaf(0.044715f * x, x, 1.0f)));
}
__device__ __noinline__ float called(float x) {
    return f(x);
}
__device__ __noinline__ float never(float) {
    return -1.0f;
}
using Function = float (*)(float);
__constant__ Function table[2] = {never, called};
__global__ void each(const float* x, float* y, int n, int which) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = table[which](x[i]);
}
KATA_EXPORT void gelu_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n) each<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n, 1);
}
