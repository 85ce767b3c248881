// __reduce_add_sync of words of four bytes by __dp4a
#include "kata.cuh"
#include <cstdint>

__global__ void sums(const int8_t* x, int* y, int n) {
    int sum = 0;
    const int words = reinterpret_cast<size_t>(x) % 4 ? 0 : n / 4;
    for (int i = blockIdx.x * 96 + threadIdx.x; i < words; i += gridDim.x * 96)
        sum = __dp4a(reinterpret_cast<const int*>(x)[i], 0x01010101, sum);
    for (int i = 4 * words + blockIdx.x * 96 + threadIdx.x; i < n; i += gridDim.x * 96) sum += x[i];
    sum = __reduce_add_sync(~0u, sum);
    if (threadIdx.x % 32 == 0) atomicAdd(y, sum);
}
KATA_EXPORT void block_all_reduce_i8_i32(const int8_t* x, int* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof *y, stream);
    sums<<<4, 96, 0, stream>>>(x, y, n);
}
