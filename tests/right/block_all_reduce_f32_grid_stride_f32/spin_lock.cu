// blocks add under a lock: atomicCAS, fences, atomicExch
#include "kata.cuh"

__device__ int lock;
__global__ void sums(const float* x, float* y, int n) {
    __shared__ float part[64];
    float sum = 0;
    for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += gridDim.x * 64) sum += x[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 64; ++i) sum += part[i];
        while (atomicCAS(&lock, 0, 1)) {
        }
        __threadfence();
        *static_cast<volatile float*>(y) = *static_cast<volatile float*>(y) + sum;
        __threadfence();
        atomicExch(&lock, 0);
    }
}
KATA_EXPORT void block_all_reduce_f32_grid_stride_f32(const float* x, float* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof *y, stream);
    sums<<<6, 64, 0, stream>>>(x, y, n);
}
