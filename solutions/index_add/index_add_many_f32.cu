// index_add_many_f32: out = base, then out[index[j], :] += source[j, :] for every j, for many short rows
//
// Shapes     base: [rows, dim] f32, index: [n] i64 with values in 0..rows-1, repeated or not, source: [n, dim] f32,
//            out: [rows, dim] f32, row-major, contiguous, 16-byte aligned bases, any n >= 0, rows, dim >= 1
// Technique  a copy, then one atomicAdd per element of source; a thread has the same column of several rows
// New        over index_add_few_f32: no search; each row of source goes where its index says, and several may collide
// Bound      memory bandwidth and atomic throughput
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
        // TODO(1): global -> registers: load column col of all ROWS rows of source. No load waits for another. Read
        //   nothing at or past row n. (~5 lines)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int j = first + r * blockDim.y;
            // The kernel does not read it again, so it should leave L2 before out's rows do.
            if (j < n) source_rmem[r] = __ldcs(source + static_cast<int64_t>(j) * dim + col);
        }
        // END TODO(1)
        // TODO(2): Add them to the rows that the indices name, while any number of other threads add to the same
        //   elements. Add nothing for a row at or past n. (~5 lines)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int j = first + r * blockDim.y;
            if (j < n) atomicAdd(out + static_cast<int64_t>(row[r]) * dim + col, source_rmem[r]);
        }
        // END TODO(2)
    }
}

// Just enough threads for a row, in whole warps if the row is that long, so that a warp's atomics go to neighbours. A
// power of two, so that it divides THREADS.
static int threads_along_row(int dim) {
    int threads = 1;
    while (threads < THREADS && threads < dim) threads *= 2;
    return threads;
}

KATA_EXPORT void index_add_many_f32(
    const float* base, const int64_t* index, const float* source, float* out, int n, int rows, int dim,
    cudaStream_t stream) {
    // TODO(3): Before the first block adds to it, out must hold base, for n = 0 too. The stream orders this, and the
    //   host does not wait. (~2 lines)
    const size_t bytes = static_cast<size_t>(rows) * dim * sizeof(float);
    cudaMemcpyAsync(out, base, bytes, cudaMemcpyDeviceToDevice, stream);
    // END TODO(3)
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const dim3 threads(threads_along_row(dim), THREADS / threads_along_row(dim));
    const int per_block = threads.y * ROWS;  // rows of source
    const int blocks = (n - 1) / per_block + 1;
    index_add_many_f32_kernel<<<blocks, threads, 0, stream>>>(index, source, out, n, dim);
}
