// 512 threads, the row in registers, the cluster's size from cudaLaunchKernelEx
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// A cluster of SIZE blocks per row. Each block keeps its part of the row in registers: CHUNKS x 8 halves per thread.
constexpr int THREADS = 512, CHUNKS = 4;

union Pack {
    uint4 raw;
    half2 h[4];
};

__global__ void __launch_bounds__(THREADS) norm_rows(const half* x, const half* weight, half* y, int cols, float eps) {
    cg::cluster_group cluster = cg::this_cluster();
    const int size = cluster.num_blocks(), rank = cluster.block_rank();
    const long long row = blockIdx.x / size;
    const uint4* in = reinterpret_cast<const uint4*>(x + row * cols);
    const uint4* w = reinterpret_cast<const uint4*>(weight);
    uint4* out = reinterpret_cast<uint4*>(y + row * cols);
    __shared__ float part[THREADS / 32];
    __shared__ float mine;
    const int vectors = cols / 8, step = size * THREADS, first = rank * THREADS + threadIdx.x;
    Pack v[CHUNKS];
    float sum = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const int i = first + c * step;
        if (i < vectors) {
            v[c].raw = in[i];
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                const float2 f = __half22float2(v[c].h[u]);
                sum += f.x * f.x + f.y * f.y;
            }
        }
    }
    for (int m = 16; m; m >>= 1) sum += __shfl_xor_sync(~0u, sum, m);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        float s = threadIdx.x < THREADS / 32 ? part[threadIdx.x] : 0.f;
        for (int m = 16; m; m >>= 1) s += __shfl_xor_sync(~0u, s, m);
        if (threadIdx.x == 0) mine = s;
    }
    cluster.sync();
    float total = 0;
    for (int b = 0; b < size; ++b) total += *cluster.map_shared_rank(&mine, b);
    cluster.sync();
    const float scale = rsqrtf(total / cols + eps);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const int i = first + c * step;
        if (i < vectors) {
            Pack g, o;
            g.raw = w[i];
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                const float2 f = __half22float2(v[c].h[u]), a = __half22float2(g.h[u]);
                o.h[u] = __floats2half2_rn(f.x * scale * a.x, f.y * scale * a.y);
            }
            out[i] = o.raw;
        }
    }
}

KATA_EXPORT void rms_norm_cluster_f16(
    const half* x, const half* weight, half* y, int rows, int cols, float eps, cudaStream_t stream) {
    int size = 1;
    while (size < 8 && size * THREADS * 8 * CHUNKS < cols) size *= 2;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(rows * size);
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = size;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, norm_rows, x, weight, y, cols, eps);
}
