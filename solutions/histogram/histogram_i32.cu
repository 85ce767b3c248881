// histogram_i32: counts[v] = how often v occurs in a, one value per thread
//
// Shapes     a: [n] i32 with values in 0..bins-1, counts: [bins] i32, 16-byte aligned bases, any n >= 0, bins >= 1
// Technique  one atomicAdd on global memory per value
// New        over elementwise_f32: the data decide where a thread writes, so threads collide: atomics
// Bound      atomic throughput: the more values share a bin, the longer its queue of additions
#include "kata.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    histogram_i32_kernel(const int* __restrict__ a, int* __restrict__ counts, int n) {
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    // TODO(1): Each thread with a value raises that value's count by one, while any number of other threads raise the
    //   same count. No update may be lost. (~1 line)
    if (idx < n) atomicAdd(&counts[a[idx]], 1);
    // END TODO(1)
}

KATA_EXPORT void histogram_i32(const int* a, int* counts, int n, int bins, cudaStream_t stream) {
    // TODO(2): counts holds old memory contents. All bins must be 0 before the first block adds to them, for n = 0 too.
    //   The stream orders this, and the host does not wait. (~1 line)
    cudaMemsetAsync(counts, 0, bins * sizeof(int), stream);
    // END TODO(2)
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / THREADS + 1;
    histogram_i32_kernel<<<blocks, THREADS, 0, stream>>>(a, counts, n);
}
