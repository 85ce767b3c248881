// swish_f16x2: y = x / (1 + exp(-x)), two halves per thread
//
// Shapes     x, y: [n] f16, contiguous, 16-byte aligned base, any n >= 0
// Technique  32-bit accesses (half2), two conversions to float and one back; scalar tail
// New        over swish_f16: one instruction moves two halves or rounds two floats
// Bound      bytes in flight: one 4-byte load per thread does not saturate the bandwidth
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 2;                    // elements per thread: half2 is 4 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// x * sigmoid(x) in float, by fast intrinsics. The relative error is at most 3e-6. Rounding to half adds 5e-4. Below
// -88.7 exp(-x) overflows and the quotient is 0. In half the answer is 0 from -20.4 down.
__device__ __forceinline__ float swish(float x) {
    return __fdividef(x, 1.0f + __expf(-x));
}

__global__ void __launch_bounds__(THREADS) swish_f16x2_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    const int idx = (blockIdx.x * THREADS + threadIdx.x) * VEC;  // this thread owns idx..idx+VEC-1, at most 2^31 - 1
    // TODO(1): Compute VEC elements with one 32-bit load of x and one 32-bit store of y, where both exist. For odd n
    //   the last thread has only one. (~4 lines)
    // END TODO(1)
    // TODO(2): The tail: let the thread with fewer than VEC elements compute them one by one. It must touch nothing at
    //   or past n. (~2 lines)
    // END TODO(2)
}

KATA_EXPORT void swish_f16x2(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (n - 1) / PER_BLOCK + 1;
    swish_f16x2_kernel<<<blocks, THREADS, 0, stream>>>(x, y, n);
}
