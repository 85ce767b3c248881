// NVTX: ranges in C and in C++, a domain, a named stream, all without a profiler
#include "kata.cuh"
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>
#include <nvtx3/nvtx3.hpp>

__global__ void add(const float* a, const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    NVTX3_FUNC_RANGE();
    static const nvtxDomainHandle_t domain = nvtxDomainCreateA("elementwise");
    nvtxNameCudaStreamA(stream, "the kata's stream");
    nvtxRangePushA("add");
    const nvtxRangeId_t launch = nvtxRangeStartA("launch");
    if (n) add<<<(n + 255) / 256, 256, 0, stream>>>(a, b, c, n);
    nvtxRangeEnd(launch);
    nvtxEventAttributes_t attributes = {};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    nvtxDomainMarkEx(domain, &attributes);
    nvtxRangePop();
}
