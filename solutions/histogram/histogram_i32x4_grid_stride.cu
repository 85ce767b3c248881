// histogram_i32x4_grid_stride: counts[v] = how often v occurs in a, four values per thread and step
//
// Shapes     a: [n] i32 with values in 0..bins-1, counts: [bins] i32, 16-byte aligned bases, any n >= 0, bins >= 1
// Technique  a grid-stride loop in a grid that just fills the GPU
// New        over histogram_i32x4: a block lives long enough to keep counters of its own; as many atomics
// Bound      atomic throughput: the more values share a bin, the longer its queue of additions
#include "kata.cuh"
#include <algorithm>
#include <cstdint>

constexpr int THREADS = 256;
constexpr int VEC = 4;                    // values per thread and step: int4 is 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // values per block and step

__global__ void __launch_bounds__(THREADS)
    histogram_i32x4_grid_stride_kernel(const int* __restrict__ a, int* __restrict__ counts, int n) {
    // TODO(1): Walk over a in a grid-stride loop. Each step does what i32x4 does: VEC values per thread, neighbours
    //   side by side, the ragged end too. Every value counts once. (~12 lines)
    // 64-bit: the step past the end may exceed 2^31.
    const int64_t stride = static_cast<int64_t>(gridDim.x) * PER_BLOCK;
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
    // END TODO(1)
}

KATA_EXPORT void histogram_i32x4_grid_stride(const int* a, int* counts, int n, int bins, cudaStream_t stream) {
    cudaMemsetAsync(counts, 0, bins * sizeof(int), stream);  // counts holds old memory contents
    if (n == 0) return;                                      // a grid of no blocks is an invalid launch
    // TODO(2): Launch at most as many blocks as run at the same time, and at most as many as have values to count. The
    //   occupancy API knows how many fit on a multiprocessor. (~9 lines)
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
    // END TODO(2)
}
