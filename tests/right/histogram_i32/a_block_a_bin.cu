// a block a bin, __syncthreads_count
#include "kata.cuh"

__global__ void count(const int* a, int* counts, int n) {
    int found = 0;
    for (int first = 0; first < n; first += 256)
        found += __syncthreads_count(first + threadIdx.x < n && a[first + threadIdx.x] == blockIdx.x);
    if (threadIdx.x == 0) counts[blockIdx.x] = found;
}
KATA_EXPORT void histogram_i32(const int* a, int* counts, int n, int bins, cudaStream_t stream) {
    if (bins) count<<<bins, 256, 0, stream>>>(a, counts, n);
}
