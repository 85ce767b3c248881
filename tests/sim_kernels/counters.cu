// Kernels whose cost is known by hand: one warp or a few, one pattern of access each.
#include "kata.cuh"
#include <cuda_fp16.h>
#include <mma.h>

#define LAUNCHER(name, grid, block)                                               \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        name##_kernel<<<grid, block, 0, stream>>>(x, y, n);                       \
    }

__global__ void coalesced_kernel(const float* x, float* y, int n) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) y[i] = x[i];  // coalesced
}
LAUNCHER(coalesced, (n + 127) / 128, 128)

__global__ void strided_kernel(const float* x, float* y, int n) {
    y[threadIdx.x] = x[threadIdx.x * 8];  // strided
}
LAUNCHER(strided, 1, 32)

__global__ void offset_kernel(const float* x, float* y, int n) {
    y[threadIdx.x] = x[threadIdx.x + 1];  // offset
}
LAUNCHER(offset, 1, 32)

__global__ void broadcast_kernel(const float* x, float* y, int n) {
    y[threadIdx.x] = x[n - 1];  // broadcast
}
LAUNCHER(broadcast, 1, 32)

__global__ void vector_kernel(const float* x, float* y, int n) {
    __shared__ float4 tile[32];
    tile[threadIdx.x] = reinterpret_cast<const float4*>(x)[threadIdx.x];  // vector_in
    __syncthreads();
    reinterpret_cast<float4*>(y)[threadIdx.x] = tile[31 - threadIdx.x];  // vector_out
}
LAUNCHER(vector, 1, 32)

__global__ void pairs_kernel(const float* x, float* y, int n) {
    __shared__ float4 tile[32];
    tile[threadIdx.x] = reinterpret_cast<const float4*>(x)[threadIdx.x];
    __syncthreads();
    reinterpret_cast<float4*>(y)[threadIdx.x] = tile[threadIdx.x / 2];  // pairs_out
}
LAUNCHER(pairs, 1, 32)

template <int WIDTH>
__device__ __forceinline__ void transpose(const float* x, float* y) {
    __shared__ float tile[32][WIDTH];
    tile[threadIdx.y][threadIdx.x] = x[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    y[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
__global__ void conflicts_kernel(const float* x, float* y, int n) {
    transpose<32>(x, y);
}
LAUNCHER(conflicts, 1, dim3(32, 32))
__global__ void padded_kernel(const float* x, float* y, int n) {
    transpose<33>(x, y);
}
LAUNCHER(padded, 1, dim3(32, 32))

// The upper half of the second warp of the third block, and no other thread.
__global__ void latecomers_kernel(const float* x, float* y, int n) {
    if (blockIdx.x == 2 && threadIdx.x >= n + 16) y[threadIdx.x - n] = x[0];  // latecomers
}
LAUNCHER(latecomers, 4, 64)

// Half of a warp goes one way: the compiler must leave a branch.
__global__ void divergent_kernel(const float* x, float* y, int n) {
    const int i = threadIdx.x;
    if (i % 32 < 16) {  // divergent
        for (int k = 0; k < n; ++k) y[i * n + k] = x[k];
    } else {
        y[i * n] = x[0];
    }
}
LAUNCHER(divergent, 1, 64)

__global__ void atomics_kernel(const float* x, float* y, int n) {
    atomicAdd(y + (threadIdx.x < 20 ? 0 : 1), 1.0f);  // atomics
}
KATA_EXPORT void atomics(const float* x, float* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, 8, stream);
    atomics_kernel<<<2, 32, 0, stream>>>(x, y, n);
    atomics_kernel<<<1, 32, 0, stream>>>(x, y, n);
}

__global__ void flops_kernel(const float* x, float* y, int n) {
    const int i = threadIdx.x;
    const float a = x[i];
    const __half2 h = __floats2half2_rn(a, a);
    y[i] = __fmaf_rn(a, a, a) + __low2float(__hfma2(h, h, h)) * 3.0f;
}
LAUNCHER(flops, 1, 32)

__global__ void asynchronous_kernel(const float* x, float* y, int n) {
    __shared__ alignas(16) float tile[128];
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(tile + 4 * threadIdx.x));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + 4 * threadIdx.x) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    y[threadIdx.x] = tile[4 * threadIdx.x];
}
LAUNCHER(asynchronous, 1, 32)

// Fragments from shared memory, of rows that are STRIDE elements apart. nvcc makes ldmatrix of halves, eight rows of 16
// bytes at a time, and of tf32 a load of 4 bytes for each register.
template <class Fragment, class T, int STRIDE>
__global__ void fragment_kernel(const float* x, float* y, int n) {
    __shared__ alignas(32) T tile[16 * STRIDE];
    for (int i = threadIdx.x; i < 16 * STRIDE; i += 32) tile[i] = T(x[i]);
    __syncwarp();
    Fragment fragment;
    nvcuda::wmma::load_matrix_sync(fragment, tile, STRIDE);  // fragment
    float sum = 0;
    for (int i = 0; i < fragment.num_elements; ++i) sum += float(fragment.x[i]);
    y[threadIdx.x] = sum;
}
using Halves = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __half, nvcuda::wmma::row_major>;
using Words =
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 8, nvcuda::wmma::precision::tf32, nvcuda::wmma::row_major>;
#define FRAGMENT(name, fragment, type, stride)                                    \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        fragment_kernel<fragment, type, stride><<<1, 32, 0, stream>>>(x, y, n);   \
    }
FRAGMENT(halves_128, Halves, __half, 128)
FRAGMENT(halves_136, Halves, __half, 136)
FRAGMENT(halves_144, Halves, __half, 144)
FRAGMENT(words_128, Words, float, 128)
FRAGMENT(words_132, Words, float, 132)
FRAGMENT(words_136, Words, float, 136)
FRAGMENT(words_144, Words, float, 144)
