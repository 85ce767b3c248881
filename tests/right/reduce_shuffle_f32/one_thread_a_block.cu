// one thread a block sums its part, one more sums these
#include "kata.cuh"

__device__ float part[40];
__global__ void parts(const float* x, int n) {
    const int length = (n + 39) / 40, end = min(n, (blockIdx.x + 1) * length);
    float sum = 0;
    for (int i = blockIdx.x * length; i < end; ++i) sum += x[i];
    part[blockIdx.x] = sum;
}
__global__ void join(float* y) {
    float sum = 0;
    for (float p : part) sum += p;
    *y = sum;
}
KATA_EXPORT void reduce_shuffle_f32(const float* x, float* y, int n, cudaStream_t stream) {
    parts<<<40, 1, 0, stream>>>(x, n);
    join<<<1, 1, 0, stream>>>(y);
}
