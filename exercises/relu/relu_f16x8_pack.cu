// relu_f16x8_pack: y = max(x, 0), eight halves per thread in one 128-bit access
//
// Shapes     x, y: [n] f16, contiguous, 16-byte aligned base, any n >= 0
// Technique  128-bit load into a register array, packed maxima in registers, one 128-bit store; scalar tail
// New        over relu_f16x8: a quarter of the memory instructions, each covers 512 contiguous bytes
// Bound      memory bandwidth
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int VEC = 8;                    // elements per thread: 16 bytes
constexpr int PER_BLOCK = THREADS * VEC;  // elements per block

// TODO(1): Write relu, two __device__ functions, for a half and for a half2: max(x, 0), but nan where x is nan.
//   (~6 lines)
// END TODO(1)

__global__ void __launch_bounds__(THREADS)
    relu_f16x8_pack_kernel(const half* __restrict__ x, half* __restrict__ y, int n) {
    // TODO(2): Compute idx, the first of the VEC elements that this thread owns. (~1 line)
    // END TODO(2)
    // TODO(3): Where all VEC elements exist: one 128-bit load of each input into registers, the maxima there, two
    //   halves per instruction, and one 128-bit store. An array stays in registers only if every index into it is a
    //   constant after unrolling. (~8 lines)
    // END TODO(3)
    // TODO(4): The tail: compute the up to VEC - 1 elements after the last whole vector. Touch nothing at or past n.
    //   (~2 lines)
    // END TODO(4)
}

KATA_EXPORT void relu_f16x8_pack(const half* x, half* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    // TODO(5): Launch on the stream just enough blocks of THREADS threads to cover all n elements, the partial last
    //   block included. No intermediate result may exceed 2^31 - 1. (~2 lines)
    // END TODO(5)
}
