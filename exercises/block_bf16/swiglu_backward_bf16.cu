// swiglu_backward_bf16: the gradient of swiglu_bf16: dx[t, i] = dy[t, i] u s (1 + g (1 - s)) and
//                       dx[t, F + i] = dy[t, i] g s, g = x[t, i], u = x[t, F + i], s = 1 / (1 + exp(-g))
//
// Shapes     x, dx: [T, 2F], dy: [T, F] bf16, row-major, contiguous, 16-byte aligned bases, any T >= 0, F >= 1; both
//            gradients are 0 for a gate of -inf
// Technique  a thread owns eight gates and their ups: three 128-bit loads, one exponential per gate, two 128-bit stores
// New        over swiglu_bf16: what the forward pass knew is computed again, not read, and one sigmoid serves both
//            gradients
// Bound      memory bandwidth
#include "kata.cuh"
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cuda_bf16.h>

constexpr int THREADS = 256;

// What the gradients need of a gate: silu and its derivative.
struct Gate {
    float silu;
    float slope;
};

// By fast intrinsics, as in the forward pass.
__device__ __forceinline__ Gate gate_of(float g) {
    Gate gate = {};
    // TODO(1): Compute silu of g and its derivative, with one exponential. For -inf both are 0, and for -100 neither is
    //   nan. (~4 lines)
    // END TODO(1)
    return gate;
}

// Pack is the type of one access, and VEC the number of its elements.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(__nv_bfloat16);

// The elements of a pack as floats.
template <typename Pack>
__device__ __forceinline__ void widen(float (&floats)[VEC<Pack>], const Pack& pack) {
#pragma unroll
    for (int i = 0; i < VEC<Pack>; ++i) floats[i] = __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(&pack)[i]);
}

// Floats as a pack, each rounded to bf16.
template <typename Pack>
__device__ __forceinline__ Pack narrow(const float (&floats)[VEC<Pack>]) {
    alignas(Pack) __nv_bfloat16 elements[VEC<Pack>];
#pragma unroll
    for (int i = 0; i < VEC<Pack>; ++i) elements[i] = __float2bfloat16(floats[i]);
    return *reinterpret_cast<const Pack*>(elements);
}

// Each token belongs to parts neighbouring blocks.
template <typename Pack>
__global__ void __launch_bounds__(THREADS) swiglu_backward_bf16_kernel(
    const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ dy, __nv_bfloat16* __restrict__ dx, int F,
    int parts) {
    const int64_t token = blockIdx.x / parts;
    const int col = (blockIdx.x % parts * THREADS + threadIdx.x) * VEC<Pack>;  // this thread owns col..col+VEC-1
    if (col >= F) return;
    Pack gate_rmem = {};
    Pack up_rmem = {};
    Pack dy_rmem = {};
    // TODO(2): global -> registers: the thread's gates, their ups and the gradients of their products, by one access of
    //   type Pack each. (~3 lines)
    // END TODO(2)
    float g[VEC<Pack>], u[VEC<Pack>], d[VEC<Pack>];
    widen(g, gate_rmem);
    widen(u, up_rmem);
    widen(d, dy_rmem);
    // TODO(3): registers -> global: store the gradients of the gates and of the ups where these are in x, by one access
    //   of type Pack each. Each gradient is rounded to bf16 once. (~8 lines)
    // END TODO(3)
}

template <typename Pack>
void launch(
    const __nv_bfloat16* x, const __nv_bfloat16* dy, __nv_bfloat16* dx, int T, int F, cudaStream_t stream) {
    constexpr int PER_BLOCK = THREADS * VEC<Pack>;
    const int parts = (F - 1) / PER_BLOCK + 1;  // blocks per token
    swiglu_backward_bf16_kernel<Pack><<<T * parts, THREADS, 0, stream>>>(x, dy, dx, F, parts);
}

KATA_EXPORT void swiglu_backward_bf16(
    const __nv_bfloat16* x, const __nv_bfloat16* dy, __nv_bfloat16* dx, int T, int F, cudaStream_t stream) {
    if (T == 0) return;  // a grid of no blocks is an invalid launch
    // Gates, ups and gradients of all tokens start at multiples of 16 bytes only if 8 divides F.
    if (F % 8 == 0) {
        launch<uint4>(x, dy, dx, T, F, stream);
    } else {
        launch<__nv_bfloat16>(x, dy, dx, T, F, stream);
    }
}
