// partial sums in scratch from cudaMallocAsync, then a kernel of one warp
#include "kata.cuh"

__global__ void parts(const float* x, float* part, int n) {
    float sum = 0;
    for (int i = blockIdx.x * 32 + threadIdx.x; i < n; i += gridDim.x * 32) sum += x[i];
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}
__global__ void join(const float* part, float* y, int count) {
    float sum = threadIdx.x < count ? part[threadIdx.x] : 0.0f;
    for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x == 31) *y = sum;
}
KATA_EXPORT void block_all_reduce_f32x4_f32(const float* x, float* y, int n, cudaStream_t stream) {
    float* part = nullptr;
    cudaMallocAsync(&part, 20 * sizeof(float), stream);
    parts<<<20, 32, 0, stream>>>(x, part, n);
    join<<<1, 32, 0, stream>>>(part, y, 20);
    cudaFreeAsync(part, stream);
}
