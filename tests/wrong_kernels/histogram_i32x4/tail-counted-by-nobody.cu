// Wrong: the values after the last whole vector are left out
// Kata: histogram_i32x4
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=1, bins=1
#include "kata.cuh"

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // values per thread: int4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // values per block

__global__ void __launch_bounds__(THREADS)
    histogram_i32x4_kernel(const int* __restrict__ a, int* __restrict__ counts, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    if (n - idx >= VEC) {
        const int4 a4 = *reinterpret_cast<const int4*>(a + idx);
        atomicAdd(&counts[a4.x], 1);
        atomicAdd(&counts[a4.y], 1);
        atomicAdd(&counts[a4.z], 1);
        atomicAdd(&counts[a4.w], 1);
    }
}

KATA_EXPORT void histogram_i32x4(const int* a, int* counts, int n, int bins, cudaStream_t stream) {
    cudaMemsetAsync(counts, 0, bins * sizeof(int), stream);  // counts comes with whatever was in memory
    if (n == 0) return;                                      // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    histogram_i32x4_kernel<<<blocks, THREADS, 0, stream>>>(a, counts, n);
}
