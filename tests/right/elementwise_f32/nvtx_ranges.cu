// nvtx ranges around the launch
#include "kata.cuh"
#include <nvtx3/nvToolsExt.h>

__global__ void add(const float* a, const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    nvtxRangePushA("add");
    if (n) add<<<(n + 255) / 256, 256, 0, stream>>>(a, b, c, n);
    nvtxRangePop();
}
