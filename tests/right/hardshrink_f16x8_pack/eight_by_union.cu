// a union of uint4 and eight halves; the tail in the last thread
#include "kata.cuh"
#include <cuda_fp16.h>

union Pack {
    uint4 bits;
    half h[8];
    __device__ Pack() {}
};
__device__ half f(half x) {
    return __hle(__habs(x), __float2half(0.5f)) ? __float2half(0.0f) : x;
}
__global__ void each(const half* x, half* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 8) {
        Pack pack;
        pack.bits = reinterpret_cast<const uint4*>(x)[i];
        for (half& h : pack.h) h = f(h);
        reinterpret_cast<uint4*>(y)[i] = pack.bits;
    }
    if (i == n / 8)
        for (int j = n & ~7; j < n; ++j) y[j] = f(x[j]);
}
KATA_EXPORT void hardshrink_f16x8_pack(const half* x, half* y, int n, cudaStream_t stream) {
    if (n) each<<<n / 8 / 32 + 1, 32, 0, stream>>>(x, y, n);
}
