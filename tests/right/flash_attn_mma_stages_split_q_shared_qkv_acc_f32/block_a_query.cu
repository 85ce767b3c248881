// a block a query with all of its logits in dynamic shared memory
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cmath>

__global__ void query(const half* Q, const half* K, const half* V, half* O, int N, int D) {
    extern __shared__ float weight[];
    __shared__ float part[4];
    const size_t row = blockIdx.x, base = row / N * N * D;
    const int warp = threadIdx.x / 32;
    const auto over_block = [&](float v, auto join) {
        for (int step = 16; step; step /= 2) v = join(v, __shfl_xor_sync(~0u, v, step));
        __syncthreads();
        if (threadIdx.x % 32 == 0) part[warp] = v;
        __syncthreads();
        return join(join(part[0], part[1]), join(part[2], part[3]));
    };
    float m = -INFINITY, sum = 0;
    for (int j = threadIdx.x; j < N; j += 128) {
        float dot = 0;
        for (int d = 0; d < D; d += 2) {
            const float2 q = __half22float2(*reinterpret_cast<const half2*>(Q + row * D + d));
            const float2 k = __half22float2(*reinterpret_cast<const half2*>(K + base + (size_t)j * D + d));
            dot = fmaf(q.x, k.x, fmaf(q.y, k.y, dot));
        }
        weight[j] = dot * rsqrtf(D);
        m = fmaxf(m, weight[j]);
    }
    m = over_block(m, [](float a, float b) { return fmaxf(a, b); });
    for (int j = threadIdx.x; j < N; j += 128) sum += weight[j] = expf(weight[j] - m);
    sum = over_block(sum, [](float a, float b) { return a + b; });
    for (int d = threadIdx.x; d < D; d += 128) {
        float o = 0;
        for (int j = 0; j < N; ++j) o += weight[j] * __half2float(V[base + (size_t)j * D + d]);
        O[row * D + d] = __float2half(o / sum);
    }
}
KATA_EXPORT void flash_attn_mma_stages_split_q_shared_qkv_acc_f32(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    query<<<B * H * N, 128, N * sizeof(float), stream>>>(Q, K, V, O, N, D);
}
