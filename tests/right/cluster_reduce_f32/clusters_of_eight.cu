// 8 blocks per cluster, one warp reads all partial sums from shared memory of the cluster
#include "kata.cuh"
#include <cooperative_groups.h>

namespace cg = cooperative_groups;
constexpr int THREADS = 256, BLOCKS = 8;

__device__ float block_sum(float v, float* part) {
    for (int m = 16; m; m >>= 1) v += __shfl_xor_sync(~0u, v, m);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int w = 0; w < THREADS / 32; ++w) v += part[w];
    return v;
}

__global__ void __cluster_dims__(BLOCKS, 1, 1) sum_clusters(const float* x, float* y, int n) {
    __shared__ float part[THREADS / 32];
    __shared__ float mine;
    const long long step = 1ll * gridDim.x * THREADS;
    const long long first = 1ll * blockIdx.x * THREADS + threadIdx.x;
    float v = 0;
    const float4* x4 = reinterpret_cast<const float4*>(x);
    long long i = first;
    for (; i + 3 * step < n / 4; i += 4 * step) {
        float4 q[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) q[u] = x4[i + u * step];
#pragma unroll
        for (int u = 0; u < 4; ++u) v += (q[u].x + q[u].y) + (q[u].z + q[u].w);
    }
    for (; i < n / 4; i += step) {
        const float4 q = x4[i];
        v += (q.x + q.y) + (q.z + q.w);
    }
    if (first < n % 4) v += x[n / 4 * 4 + first];
    v = block_sum(v, part);
    if (threadIdx.x == 0) mine = v;
    cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();
    if (cluster.block_rank() == 0 && threadIdx.x < 32) {
        float s = threadIdx.x < BLOCKS ? *cluster.map_shared_rank(&mine, threadIdx.x) : 0.f;
        for (int m = 16; m; m >>= 1) s += __shfl_xor_sync(~0u, s, m);
        if (threadIdx.x == 0) atomicAdd(y, s);
    }
    cluster.sync();
}

KATA_EXPORT void cluster_reduce_f32(const float* x, float* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(float), stream);
    if (n == 0) return;
    int device, sms;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    const long long want = (n / 4 + THREADS * BLOCKS - 1) / (THREADS * BLOCKS);
    long long clusters = want < sms ? want : sms;
    if (clusters < 1) clusters = 1;
    sum_clusters<<<static_cast<int>(clusters * BLOCKS), THREADS, 0, stream>>>(x, y, n);
}
