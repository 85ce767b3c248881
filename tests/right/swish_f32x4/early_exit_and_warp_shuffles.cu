// lanes exit early; those that are left exchange elements by shuffles of the active mask
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return (x < 0.0f ? x * expf(x) : x) / (1.0f + expf(-fabsf(x)));
}
__global__ void each(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned here = __activemask();
    const float mine = f(x[i]);
    const int lane = threadIdx.x % 32, count = __popc(here);
    const float other = __shfl_sync(here, mine, count - 1 - lane);
    y[i - lane + count - 1 - lane] = other;
}
KATA_EXPORT void swish_f32x4(const float* x, float* y, int n, cudaStream_t stream) {
    if (n) each<<<(n + 159) / 160, 160, 0, stream>>>(x, y, n);
}
