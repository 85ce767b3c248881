// __ldcs, __stcs, and their like for vectors; the tail with __ldcg
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return x / (1.0f + expf(-1.5957691216f * x * fmaf(0.044715f * x, x, 1.0f)));
}
__global__ void each(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, quads = n / 4;
    if (i < quads) {
        float4 v = __ldcs(reinterpret_cast<const float4*>(x) + i);
        v.x = f(v.x), v.y = f(v.y), v.z = f(v.z), v.w = f(v.w);
        __stcs(reinterpret_cast<float4*>(y) + i, v);
    } else if (quads * 4 + (i - quads) < n) {
        __stwt(y + quads * 3 + i, f(__ldcg(x + quads * 3 + i)));
    }
}
KATA_EXPORT void gelu_f32x4(const float* x, float* y, int n, cudaStream_t stream) {
    if (n) each<<<(n / 4 + n % 4 + 63) / 64, 64, 0, stream>>>(x, y, n);
}
