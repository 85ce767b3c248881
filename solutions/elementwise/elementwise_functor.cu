// elementwise_functor: r[i] = f(a[i], b[i], ...) for any f: here p[0] + p[1], half(x), and mask ? a : b
//
// Shapes     x: [n] f32, p: [2, n] f16, mask: [n] u8, a, b: [n] f32, h: [2, n] f16, chosen: [n] f32, contiguous,
//            16-byte aligned bases, any n >= 0; a second row begins n elements later
// Technique  one kernel template: packs as wide as all pointers allow, a grid of whole waves
// New        over elementwise_f16x8_pack: the function, its number of arguments and all types are parameters
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int MAX_BYTES = 16;  // of one access
constexpr int MAX_WAVES = 32;  // of a grid: most threads have one pack then, and a large n needs no more blocks

// N elements that move in one access: the struct is aligned to its size.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
    T elem[N];
};

// N results from N elements of each argument, in registers.
template <int N, class R, class Function, class... A>
__device__ __forceinline__ Pack<R, N> apply_to_packs(Function f, Pack<A, N>... args) {
    Pack<R, N> result;
    // TODO(1): Each result is f of the arguments' elements at the same place. The loop must unroll completely, because
    //   registers have no address. (~2 lines)
#pragma unroll
    for (int i = 0; i < N; ++i) result.elem[i] = f(args.elem[i]...);
    // END TODO(1)
    return result;
}

template <int N, class Function, class R, class... A>
__global__ void __launch_bounds__(THREADS) elementwise_kernel(Function f, int n, R* __restrict__ r, const A*... args) {
    // 64-bit: the step past the end may exceed 2^31.
    const int64_t first = blockIdx.x * THREADS + threadIdx.x;  // this thread's place in the grid
    const int64_t stride = gridDim.x * THREADS;
    // TODO(2): Compute the n / N whole packs in a grid-stride loop, with one access per pack of each argument and of
    //   the result. (~4 lines)
    for (int64_t pack = first; pack < n / N; pack += stride) {
        reinterpret_cast<Pack<R, N>*>(r)[pack] =
            apply_to_packs<N, R>(f, reinterpret_cast<const Pack<A, N>*>(args)[pack]...);
    }
    // END TODO(2)
    // TODO(3): The tail: one thread computes each of the n % N elements after the last whole pack. Touch nothing at or
    //   past n. (~1 line)
    if (first < n % N) r[n - 1 - first] = f(args[n - 1 - first]...);
    // END TODO(3)
}

// Launches the kernel with packs of N elements, or of fewer if a pointer is not aligned for N.
template <int N, class Function, class R, class... A>
static void launch(cudaStream_t stream, Function f, int n, R* r, const A*... args) {
    if constexpr (N > 1) {
        // TODO(4): If any pointer is not a multiple of its pack's size, use packs of half as many elements. (~4 lines)
        const bool aligned = ((reinterpret_cast<uintptr_t>(args) % sizeof(Pack<A, N>) == 0) && ...);
        if (!aligned || reinterpret_cast<uintptr_t>(r) % sizeof(Pack<R, N>) != 0) {
            return launch<N / 2>(stream, f, n, r, args...);
        }
        // END TODO(4)
    }
    void (*const kernel)(Function, int, R*, const A*...) = elementwise_kernel<N, Function, R, A...>;
    int device = 0;
    int multiprocessors = 0;
    int blocks_per_multiprocessor = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_multiprocessor, kernel, THREADS, 0);
    const int wave = multiprocessors * blocks_per_multiprocessor;  // blocks that run at the same time
    // TODO(5): Launch enough blocks for one pack per thread, the partial last block included, but at most MAX_WAVES
    //   whole waves. A partial wave leaves multiprocessors idle. (~2 lines)
    const int blocks = std::min((n - 1) / (THREADS * N) + 1, MAX_WAVES * wave);
    kernel<<<blocks, THREADS, 0, stream>>>(f, n, r, args...);
    // END TODO(5)
}

// r[i] = f(args[i]...) for all i in 0..n-1, n >= 1. The widest type limits the elements of a pack.
template <class Function, class R, class... A>
static void elementwise(cudaStream_t stream, Function f, int n, R* r, const A*... args) {
    launch<MAX_BYTES / std::max({sizeof(R), sizeof(A)...})>(stream, f, n, r, args...);
}

struct Add {
    __device__ half operator()(half a, half b) const { return __hadd(a, b); }
};
struct ToHalf {
    __device__ half operator()(float x) const { return __float2half_rn(x); }
};
struct Choose {
    __device__ float operator()(uint8_t mask, float a, float b) const { return mask ? a : b; }
};

KATA_EXPORT void elementwise_functor(
    const float* x, const half* p, const uint8_t* mask, const float* a, const float* b, half* h, float* chosen, int n,
    cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    elementwise(stream, Add{}, n, h, p, p + n);
    elementwise(stream, ToHalf{}, n, h + n, x);
    elementwise(stream, Choose{}, n, chosen, mask, a, b);
}
