// Offsets in 32 bits: products of sizes, and what only looks like them. tests/test_offsets.py says which.
#include <cstdint>
__device__ __forceinline__ int place(int row, int cols, int col) {
    return row * cols + col;  // in a function
}
__global__ void direct(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.y, col = blockIdx.x * 256 + threadIdx.x;
    if (row < rows && col < cols) y[static_cast<unsigned>(row) * cols + col] = 1.0f;  // direct
}
__global__ void inlined(const unsigned* x, float* y, unsigned rows, unsigned cols) {
    unsigned row = blockIdx.y * 4 + threadIdx.y, col = blockIdx.x * 256 + threadIdx.x;
    unsigned at = row * cols;  // kept in a variable
    for (unsigned i = 0; i < x[0]; ++i) at += 256;
    if (row < rows && col < cols) y[at + col] = 1.0f;
}
__global__ void through_a_call(float* y, unsigned rows, unsigned cols) {
    unsigned row = blockIdx.y, col = threadIdx.x;
    if (row < rows) y[static_cast<unsigned>(place(row, cols, col))] = 1.0f;
}
__global__ void computed_before_the_loop(float* y, int rows, int cols) {
    const int first = blockIdx.x * (blockDim.y * 2) + threadIdx.y;  // where nvcc computes it
    for (int64_t col = threadIdx.x; col < cols; col += blockDim.x)
        for (int r = 0; r < 2; ++r)
            if (first + r * blockDim.y < rows) y[int(first + r * blockDim.y) * cols + col] = 1.0f;  // of the access
}
__global__ void wide(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.y, col = blockIdx.x * 256 + threadIdx.x;
    if (row < rows && col < cols) y[static_cast<int64_t>(row) * cols + col] = x[int64_t{row} * cols + col];
}
__global__ void flat(const float* x, float* y, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i];
}
__global__ void back_to_a_row(const float* x, float* y, int n, int tiles) {
    unsigned tile = blockIdx.x % tiles, part = blockIdx.x - blockIdx.x / tiles * tiles;
    y[tile * 256 + threadIdx.x] = x[part * 256 + threadIdx.x];
}
__global__ void compared(float* y, unsigned rows, unsigned cols, unsigned most) {
    if (rows * cols < most) y[threadIdx.x] = 1.0f;
}
__global__ void in_shared(const float* x, float* y, unsigned cols) {
    extern __shared__ float tile[];
    tile[threadIdx.y * cols + threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x * cols + threadIdx.y];
}
