// relu_f16x2: y = max(x, 0), two halves per thread
//
// Shapes     x, y: [n] f16, contiguous, 16-byte aligned base, any n >= 0
// Technique  32-bit accesses and one packed maximum per thread (half2); scalar tail
// New        over relu_f16: one instruction moves two halves or takes two maxima
// Bound      bytes in flight: one 4-byte load per thread does not saturate the bandwidth
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 2;                    // elements per thread: half2 is 4 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// TODO(1): Write relu, two __device__ functions, for a half and for a half2: max(x, 0), but nan where x is nan.
//   (~6 lines)
// END TODO(1)

__global__ void __launch_bounds__(THREADS) relu_f16x2_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    // TODO(2): Compute idx, the first of the VEC elements that this thread owns. (~1 line)
    // END TODO(2)
    // TODO(3): Compute VEC elements with one 32-bit load of x, one packed maximum and one 32-bit store of y, where both
    //   elements exist. For odd n the last thread has only one. (~3 lines)
    // END TODO(3)
    // TODO(4): The tail: let the thread with fewer than VEC elements compute them one by one. It must touch nothing at
    //   or past n. (~2 lines)
    // END TODO(4)
}

KATA_EXPORT void relu_f16x2(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    // TODO(5): Launch on the stream just enough blocks of THREADS threads to cover all n elements, the partial last
    //   block included. No intermediate result may exceed 2^31 - 1. (~2 lines)
    // END TODO(5)
}
