// Trees of one warp over volatile shared memory, with and without what orders its lanes.
#include "kata.cuh"

constexpr int LANES = 32;

// y[b] = the sum of block b's 32 elements of x.
template <bool SYNC>
__global__ void tree_kernel(const float* x, float* y, int n) {
    __shared__ float storage[2 * LANES];
    volatile float* places = storage;
    const int lane = threadIdx.x, idx = blockIdx.x * LANES + lane;
    places[lane] = idx < n ? x[idx] : 0.0f;
    places[lane + LANES] = 0.0f;
    __syncthreads();
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) {
        const float other = places[lane + offset];
        if (SYNC) __syncwarp();
        places[lane] = places[lane] + other;
        if (SYNC) __syncwarp();
    }
    if (lane == 0) y[blockIdx.x] = places[0];
}

// A lane that waits for another one of its warp.
__global__ void flag_kernel(const float* x, float* y, int n) {
    __shared__ float flag_storage;
    volatile float* flag = &flag_storage;
    const int lane = threadIdx.x;
    if (lane == 0) *flag = 0.0f;
    __syncthreads();
    if (lane == 31) *flag = 1.0f + x[0];
    while (*flag == 0.0f) {
    }
    y[lane] = *flag;
}

KATA_EXPORT void tree_in_step(const float* x, float* y, int n, cudaStream_t stream) {
    tree_kernel<false><<<n / LANES, LANES, 0, stream>>>(x, y, n);
}
KATA_EXPORT void tree_with_syncwarp(const float* x, float* y, int n, cudaStream_t stream) {
    tree_kernel<true><<<n / LANES, LANES, 0, stream>>>(x, y, n);
}
KATA_EXPORT void flag_in_a_warp(const float* x, float* y, int n, cudaStream_t stream) {
    flag_kernel<<<1, LANES, 0, stream>>>(x, y, n);
}
