// blocks take tiles from a counter in global memory, which the launcher clears
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return x * (fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f));
}
__device__ unsigned next;
__global__ void workers(const float* x, float* y, int n) {
    __shared__ unsigned tile;
    for (;;) {
        if (threadIdx.x == 0) tile = atomicAdd(&next, 64u);
        __syncthreads();
        const unsigned i = tile + threadIdx.x;
        if (tile >= unsigned(n)) return;
        if (i < unsigned(n)) y[i] = f(x[i]);
        __syncthreads();
    }
}
KATA_EXPORT void hardswish_f32(const float* x, float* y, int n, cudaStream_t stream) {
    void* counter = nullptr;
    cudaGetSymbolAddress(&counter, next);
    cudaMemsetAsync(counter, 0, sizeof next, stream);
    workers<<<5, 64, 0, stream>>>(x, y, n);
}
