// scale_f32: y = a * x, one float per thread
//
// Shapes     x, y: [n] f32, contiguous, 16-byte aligned base, any n >= 0; a: a float
// Technique  one thread per element
// New        the first kata: a loop becomes a grid
// Bound      memory bandwidth
#include "kata.cuh"

constexpr int THREADS = 256;  // threads per block

// Runs on the GPU, once in each thread of the grid. x and y point to the GPU's memory.
__global__ void scale_f32_kernel(const float* x, float* y, int n, float a) {
    // TODO(1): Compute an int i, the number of this thread in the whole grid, from the number of its block, the number
    //   of threads per block, and its number within the block. (~1 line)
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    // END TODO(1)
    // TODO(2): Write y[i] = a * x[i]. The grid may have more threads than there are elements: a thread whose i is not
    //   below n must read nothing and write nothing. (~1 line)
    if (i < n) y[i] = a * x[i];
    // END TODO(2)
}

// Runs on the CPU. The grader calls it with pointers to the GPU's memory, and with a stream.
KATA_EXPORT void scale_f32(const float* x, float* y, int n, float a, cudaStream_t stream) {
    if (n == 0) return;  // a grid of 0 blocks is an error
    // TODO(3): Compute an int, the number of blocks of THREADS threads that cover n elements, rounded up. n may be
    //   2^31 - 1, so no step of the computation may exceed n. (~1 line)
    const int blocks = (n - 1) / THREADS + 1;
    // END TODO(3)
    // TODO(4): Launch the kernel with that many blocks of THREADS threads, on the stream. (~1 line)
    scale_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n, a);
    // END TODO(4)
}
