// each block waits for the sum of the one before it, which comes with a flag in one 64-bit word
#include "kata.cuh"

__device__ unsigned long long chain[16];
__global__ void sums(const float* x, float* y, int n) {
    float sum = 0;
    for (int i = blockIdx.x * 32 + threadIdx.x; i < n; i += gridDim.x * 32) sum += x[i];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x) return;
    if (blockIdx.x) {
        unsigned long long word;
        do word = *static_cast<volatile unsigned long long*>(chain + blockIdx.x - 1);
        while (!(word >> 32));
        sum += __uint_as_float(unsigned(word));
    }
    if (blockIdx.x + 1 == gridDim.x)
        *y = sum;
    else
        *static_cast<volatile unsigned long long*>(chain + blockIdx.x) = 1ull << 32 | __float_as_uint(sum);
}
KATA_EXPORT void reduce_multi_add_f32(const float* x, float* y, int n, cudaStream_t stream) {
    void* at = nullptr;
    cudaGetSymbolAddress(&at, chain);
    cudaMemsetAsync(at, 0, sizeof chain, stream);
    sums<<<12, 32, 0, stream>>>(x, y, n);
}
