// pairs widened to float2, warps join by float atomics
#include "kata.cuh"
#include <cuda_fp16.h>

__global__ void dot(const half* a, const half* b, float* y, int n) {
    float sum = 0;
    const int pairs = n / 2;
    for (int i = blockIdx.x * 64 + threadIdx.x; i < pairs; i += gridDim.x * 64) {
        const float2 p = __half22float2(reinterpret_cast<const half2*>(a)[i]);
        const float2 q = __half22float2(reinterpret_cast<const half2*>(b)[i]);
        sum = fmaf(p.x, q.x, fmaf(p.y, q.y, sum));
    }
    if (n % 2 && blockIdx.x == 0 && threadIdx.x == 0) sum += __half2float(a[n - 1]) * __half2float(b[n - 1]);
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) atomicAdd(y, sum);
}
KATA_EXPORT void dot_product_f16x2_f32(const half* a, const half* b, float* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(float), stream);
    dot<<<3, 64, 0, stream>>>(a, b, y, n);
}
