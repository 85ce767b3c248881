// Wrong: the grid steps by its threads, of which each takes four values: most values are counted again
// Kata: histogram_i32x4_grid_stride
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=257, bins=10
#include "kata.cuh"
#include <algorithm>
#include <cstdint>

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // values per thread in a turn: int4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // values per block in a turn

__global__ void __launch_bounds__(THREADS)
    histogram_i32x4_grid_stride_kernel(const int* __restrict__ a, int* __restrict__ counts, int n) {
    // 64-bit: the step past the end may pass 2^31.
    const int64_t stride = static_cast<int64_t>(gridDim.x) * THREADS;
    for (int64_t idx = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * VEC; idx < n; idx += stride) {
        if (n - idx >= VEC) {
            const int4 a4 = *reinterpret_cast<const int4*>(a + idx);
            atomicAdd(&counts[a4.x], 1);
            atomicAdd(&counts[a4.y], 1);
            atomicAdd(&counts[a4.z], 1);
            atomicAdd(&counts[a4.w], 1);
        }
        if (n - idx < VEC) {
            for (int64_t i = idx; i < n; ++i) atomicAdd(&counts[a[i]], 1);
        }
    }
}

KATA_EXPORT void histogram_i32x4_grid_stride(const int* a, int* counts, int n, int bins, cudaStream_t stream) {
    cudaMemsetAsync(counts, 0, bins * sizeof(int), stream);  // counts comes with whatever was in memory
    if (n == 0) return;                                      // a grid of no blocks is an invalid launch
    int device = 0;
    int multiprocessors = 0;
    int blocks_per_multiprocessor = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks_per_multiprocessor, histogram_i32x4_grid_stride_kernel, THREADS, 0);
    const int most_blocks = multiprocessors * blocks_per_multiprocessor;
    const int blocks = std::min((n - 1) / PER_BLOCK + 1, most_blocks);
    histogram_i32x4_grid_stride_kernel<<<blocks, THREADS, 0, stream>>>(a, counts, n);
}
