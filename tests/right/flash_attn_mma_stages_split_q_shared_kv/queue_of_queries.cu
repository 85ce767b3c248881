// persistent warps take queries from a queue with cuda::atomic_ref
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cmath>
#include <cuda/atomic>

constexpr int MOST = 32;  // elements of a row that a lane keeps: D up to 1024
template <bool CAUSAL>
__device__ float attend(const half* Q, const half* K, const half* V, half* O, long long row, int N, int D) {
    const int lane = threadIdx.x % 32, query = row % N;
    const half *q = Q + row * D, *k = K + (row - query) * D, *v = V + (row - query) * D;
    float acc[MOST], m = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < MOST; ++i) acc[i] = 0;
    const float scale = rsqrtf(float(D));
    for (int j = 0; j < (CAUSAL ? query + 1 : N); ++j) {
        float dot = 0;
        for (int d = lane; d < D; d += 32) dot += __half2float(q[d]) * __half2float(k[(long long)j * D + d]);
        for (int step = 16; step; step /= 2) dot += __shfl_xor_sync(~0u, dot, step);
        dot *= scale;
        const float larger = fmaxf(m, dot), shrink = expf(m - larger), weight = expf(dot - larger);
        sum = sum * shrink + weight;
        m = larger;
#pragma unroll
        for (int i = 0; i < MOST; ++i)
            if (i * 32 + lane < D)
                acc[i] = acc[i] * shrink + weight * __half2float(v[(long long)j * D + i * 32 + lane]);
    }
#pragma unroll
    for (int i = 0; i < MOST; ++i)
        if (i * 32 + lane < D) O[row * D + i * 32 + lane] = __float2half(acc[i] / sum);
    return m + logf(sum);
}

__device__ unsigned next_row;
__global__ void workers(const half* Q, const half* K, const half* V, half* O, unsigned all, int N, int D) {
    for (;;) {
        unsigned row = 0;
        if (threadIdx.x % 32 == 0)
            row = cuda::atomic_ref<unsigned, cuda::thread_scope_device>(next_row).fetch_add(
                1, cuda::std::memory_order_relaxed);
        row = __shfl_sync(~0u, row, 0);
        if (row >= all) return;
        attend<false>(Q, K, V, O, row, N, D);
    }
}
KATA_EXPORT void flash_attn_mma_stages_split_q_shared_kv(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    void* queue = nullptr;
    cudaGetSymbolAddress(&queue, next_row);
    cudaMemsetAsync(queue, 0, sizeof(unsigned), stream);
    workers<<<5, 96, 0, stream>>>(Q, K, V, O, B * H * N, N, D);
}
