// Wrong: with no indices, out is never written
// Kata: index_add_many_f32
// Sim: wrong answer
// Gpu: wrong answer
// Sizes: n=0, rows=1, dim=1
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int ROWS = 4;  // rows of source for each thread, blockDim.y apart

__global__ void __launch_bounds__(THREADS) index_add_many_f32_kernel(
    const int64_t* __restrict__ index,  // [n]
    const float* __restrict__ source,   // [n, dim]
    float* __restrict__ out,            // [rows, dim]
    int n, int dim) {
    // The threads of one threadIdx.y add the rows first, first + blockDim.y, ... of source, at most 2^31 - 1.
    const int first = blockIdx.x * (blockDim.y * ROWS) + threadIdx.y;
    int row[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int j = first + r * blockDim.y;
        if (j < n) row[r] = static_cast<int>(index[j]);  // below rows
    }
    for (int64_t col = threadIdx.x; col < dim; col += blockDim.x) {
        float source_rmem[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int j = first + r * blockDim.y;
            // Nobody reads it again, so it should be the first to leave L2, and not out's rows.
            if (j < n) source_rmem[r] = __ldcs(source + static_cast<int64_t>(j) * dim + col);
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int j = first + r * blockDim.y;
            if (j < n) atomicAdd(out + static_cast<int64_t>(row[r]) * dim + col, source_rmem[r]);
        }
    }
}

// Just enough threads for a row, in whole warps where it is as long: then a warp's atomics go to neighbours. A power of
// two, so that it divides THREADS.
static int threads_along_row(int dim) {
    int threads = 1;
    while (threads < THREADS && threads < dim) threads *= 2;
    return threads;
}

KATA_EXPORT void index_add_many_f32(
    const float* base, const int64_t* index, const float* source, float* out, int n, int rows, int dim,
    cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const size_t bytes = static_cast<size_t>(rows) * dim * sizeof(float);
    cudaMemcpyAsync(out, base, bytes, cudaMemcpyDeviceToDevice, stream);
    const dim3 threads(threads_along_row(dim), THREADS / threads_along_row(dim));
    const int per_block = threads.y * ROWS;  // rows of source
    const int blocks = (n - 1) / per_block + 1;
    index_add_many_f32_kernel<<<blocks, threads, 0, stream>>>(index, source, out, n, dim);
}
