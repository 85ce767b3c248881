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

// Pack is the type of one access, and VEC the number of its elements: 8 or 1.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(__nv_bfloat16);

// The elements of a pack as floats: a bf16 is the upper half of a float.
__device__ __forceinline__ void widen(float (&floats)[8], const uint4& pack) {
    const uint32_t words[4] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        floats[2 * i] = __uint_as_float(words[i] << 16);
        floats[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000);
    }
}

// The same for a single element.
__device__ __forceinline__ void widen(float (&floats)[1], const __nv_bfloat16& pack) {
    floats[0] = __bfloat162float(pack);
}

// Floats as a pack, each rounded to bf16.
__device__ __forceinline__ void narrow(uint4& pack, const float (&floats)[8]) {
    auto* pairs = reinterpret_cast<__nv_bfloat162*>(&pack);
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(floats[2 * i], floats[2 * i + 1]);
}

// The same for a single element.
__device__ __forceinline__ void narrow(__nv_bfloat16& pack, const float (&floats)[1]) {
    pack = __float2bfloat16(floats[0]);
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
    //   of type Pack each. Each gradient is rounded to bf16 once. (~10 lines)
    // END TODO(3)
}

template <typename Pack>
void launch(const __nv_bfloat16* x, const __nv_bfloat16* dy, __nv_bfloat16* dx, int T, int F, cudaStream_t stream) {
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
