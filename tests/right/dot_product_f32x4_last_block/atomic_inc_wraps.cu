// atomicInc wraps the counter, which is never cleared; __ldcg reads the parts
#include "kata.cuh"

__device__ float part[64];
__device__ unsigned count;
__global__ void dot(const float* a, const float* b, float* y, int n) {
    __shared__ float s[128];
    __shared__ bool last;
    float sum = 0;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) sum += a[i] * b[i];
    s[threadIdx.x] = sum;
    for (int half = 64; half; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
    }
    if (threadIdx.x == 0) {
        part[blockIdx.x] = s[0];
        __threadfence();
        last = atomicInc(&count, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last || threadIdx.x >= 32) return;
    sum = threadIdx.x < gridDim.x ? __ldcg(part + threadIdx.x) : 0.0f;
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (threadIdx.x == 0) *y = sum;
}
KATA_EXPORT void dot_product_f32x4_last_block(const float* a, const float* b, float* y, int n, cudaStream_t stream) {
    dot<<<11, 128, 0, stream>>>(a, b, y, n);
}
