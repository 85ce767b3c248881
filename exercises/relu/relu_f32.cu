// relu_f32: y = max(x, 0), one float per thread
//
// Shapes     x, y: [n] f32, contiguous, 16-byte aligned base, any n >= 0
// Technique  one thread per element, flat index, bounds check
// New        over elementwise_f32: one input instead of two, and a function that must keep nan
// Bound      bytes in flight: one 4-byte load per thread does not saturate the bandwidth
#include "kata.cuh"

constexpr int THREADS = 256;

// TODO(1): Write relu, a __device__ function from float to float: max(x, 0), but nan where x is nan. (~1 line)
// END TODO(1)

__global__ void __launch_bounds__(THREADS) relu_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    // TODO(2): Let each thread compute one element with coalesced accesses: each of 0..n-1 once, nothing at or past n.
    //   (~2 lines)
    // END TODO(2)
}

KATA_EXPORT void relu_f32(const float* x, float* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    // TODO(3): Launch on the stream just enough blocks of THREADS threads to cover all n elements, the partial last
    //   block included. No intermediate result may exceed 2^31 - 1. (~2 lines)
    // END TODO(3)
}
