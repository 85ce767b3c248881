// Sums and copies that lose an element, or take one too many, on their way through shared memory.
#include "kata.cuh"
#include <cstdint>

#define LAUNCHER(name, grid, block)                                               \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        name##_kernel<<<grid, block, 0, stream>>>(x, y, n);                       \
    }

// ---- y[0] is the sum of x, n is at most 128

__device__ __forceinline__ float warp_sum(float sum) {
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
    return sum;
}

__device__ __forceinline__ float block_sum(float sum, float* sums, int warps) {
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;  // put
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < warps ? sums[threadIdx.x % 32] : 0.0f);  // take
}

__global__ void not_taken_kernel(const float* x, float* y, int n) {
    __shared__ float warp_sums[4];
    const float sum = block_sum(threadIdx.x < n ? x[threadIdx.x] : 0.0f, warp_sums, 3);  // not_taken
    if (threadIdx.x == 0) y[0] = sum;
}
LAUNCHER(not_taken, 1, 128)

__global__ void not_put_kernel(const float* x, float* y, int n) {
    __shared__ float warp_sums[4];
    float sum = threadIdx.x < n ? x[threadIdx.x] : 0.0f;  // not_put
    if (threadIdx.x == 96) sum *= threadIdx.x > 96;
    sum = block_sum(sum, warp_sums, 4);
    if (threadIdx.x == 0) y[0] = sum;
}
LAUNCHER(not_put, 1, 128)

__global__ void not_read_kernel(const float* x, float* y, int n) {
    __shared__ float warp_sums[4];
    const float sum = block_sum(threadIdx.x + 1 < n ? x[threadIdx.x] : 0.0f, warp_sums, 4);
    if (threadIdx.x == 0) y[0] = sum;
}
LAUNCHER(not_read, 1, 128)

__global__ void dropped_kernel(const float* x, float* y, int n) {
    __shared__ float warp_sums[4];
    const float sum = block_sum(threadIdx.x < n ? x[threadIdx.x] : 0.0f, warp_sums, 4);
    if (threadIdx.x == 0) y[0] = n > 96 ? sum - warp_sums[3] : sum;  // dropped
}
LAUNCHER(dropped, 1, 128)

__device__ float scratch[4];

__global__ void between_blocks_kernel(const float* x, float* y, int n) {
    const int at = blockIdx.x * 32 + threadIdx.x;
    const float sum = warp_sum(at < n ? x[at] : 0.0f);
    if (threadIdx.x == 0) scratch[blockIdx.x] = sum;  // between_blocks
}
__global__ void last_kernel(float* y) {
    y[0] = scratch[0] + scratch[1] + scratch[2];
}
KATA_EXPORT void between_blocks(const float* x, float* y, int n, cudaStream_t stream) {
    between_blocks_kernel<<<4, 32, 0, stream>>>(x, y, n);
    last_kernel<<<1, 1, 0, stream>>>(y);
}

__global__ void __cluster_dims__(2, 1, 1) in_clusters_kernel(const float* x, float* y, int n) {
    const int at = blockIdx.x * 32 + threadIdx.x;
    const float sum = warp_sum(at < n ? x[at] : 0.0f);
    if (threadIdx.x == 0) scratch[blockIdx.x] = sum;  // in_clusters
}
KATA_EXPORT void in_clusters(const float* x, float* y, int n, cudaStream_t stream) {
    in_clusters_kernel<<<4, 32, 0, stream>>>(x, y, n);
    last_kernel<<<1, 1, 0, stream>>>(y);
}

__device__ float halves[2];

__global__ void halves_kernel() {
    halves[blockIdx.x] = scratch[2 * blockIdx.x] + scratch[2 * blockIdx.x + 1];  // half_sum
}
__global__ void each_half_kernel(float* y) {
    y[blockIdx.x] = halves[blockIdx.x];  // each_half
}
KATA_EXPORT void each_half(const float* x, float* y, int n, cudaStream_t stream) {
    between_blocks_kernel<<<4, 32, 0, stream>>>(x, y, n);
    halves_kernel<<<2, 1, 0, stream>>>();
    each_half_kernel<<<2, 1, 0, stream>>>(y);
}

// ---- y[i] = x[i], n is at most 64

__global__ void swapped_kernel(const float* x, float* y, int n) {
    __shared__ float tile[2][32];
    const int i = threadIdx.x;
    if (i < n) tile[i / 32][i % 32] = x[i];  // swapped_put
    __syncthreads();
    if (i < n) y[i] = tile[i / 32][n == 64 ? (i % 32) ^ (i > 40) : i % 32];  // swapped_take
}
LAUNCHER(swapped, 1, 64)

__global__ void copied_kernel(const float* x, float* y, int n) {
    __shared__ __align__(16) float tile[64];
    if (threadIdx.x < 16) {
        const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(tile + threadIdx.x * 4));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + threadIdx.x * 4));  // copied_put
    }
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x ^ 1];  // copied_take
}
LAUNCHER(copied, 1, 64)

__global__ void in_two_ways_kernel(const float* x, float* y, int n) {
    float sum = 0;
    for (int i = 0; i < int(x[0]); ++i) sum += x[i];
    y[threadIdx.x] = sum;
}
LAUNCHER(in_two_ways, 1, 64)

// ---- the ways through registers

__global__ void read_twice_kernel(const float* x, float* y, int n) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 32) sum += x[i];  // read_once
    if (threadIdx.x == 1) sum += x[0];                      // read_again
    sum = warp_sum(sum);
    if (threadIdx.x == 0) y[0] = sum;
}
LAUNCHER(read_twice, 1, 32)

__global__ void two_ways_kernel(const float* x, float* y, int n) {
    __shared__ float before_smem;
    const float sum = warp_sum(threadIdx.x < n ? x[threadIdx.x] : 0.0f);  // two_ways_sum
    if (threadIdx.x == 0) before_smem = sum;                              // two_ways_put
    __syncwarp();
    if (threadIdx.x == 0) y[0] = before_smem + sum;  // two_ways_take
}
LAUNCHER(two_ways, 1, 32)

__device__ __forceinline__ float scaled(float value, float scale) {
    return value * scale;  // scaled
}

// y[i] must be x[i], and is a mean of others.
__global__ void computed_kernel(const float* x, float* y, int n) {
    const float other = x[(threadIdx.x + 1) % n];  // computed_read
    float value = x[threadIdx.x];
    if (threadIdx.x == 41) value = scaled(value + other, 0.5f);  // computed_call
    y[threadIdx.x] = value;                                      // computed_write
}
LAUNCHER(computed, 1, 64)

// A product of matrices adds to what has been read.
__global__ void product_kernel(const float* x, float* y, int n) {
    const float a = x[threadIdx.x];
    float d[4] = {a, a, a, a};
    const unsigned one = 0x3f800000u;
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(one));
    y[threadIdx.x] = d[0];
}
LAUNCHER(product, 1, 32)
