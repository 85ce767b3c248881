// a warp brings keys and values, 64 threads compute a query each; cuda::barrier full and empty
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cuda/barrier>
#include <cmath>

using Barrier = cuda::barrier<cuda::thread_scope_block>;
constexpr int KEYS = 8, STAGES = 2;
// The last warp brings keys and values; 64 threads have a query each, whose sums of O are in shared memory.
__global__ void tiles(const half* Q, const half* K, const half* V, half* O, int N, int D) {
    extern __shared__ half held[];  // keys and values of each stage
    __shared__ Barrier full[STAGES], empty[STAGES];
    float* acc = reinterpret_cast<float*>(held + STAGES * 2 * KEYS * D);
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; ++s) init(&full[s], 96), init(&empty[s], 96);
    __syncthreads();
    const size_t base = (size_t)blockIdx.y * N * D;
    const int steps = (N + KEYS - 1) / KEYS;
    if (threadIdx.x >= 64) {
        for (int t = 0; t < steps; ++t) {
            const int s = t % STAGES;
            if (t >= STAGES) empty[s].arrive_and_wait();
            half* to = held + s * 2 * KEYS * D;
            for (int i = threadIdx.x - 64; i < KEYS * D; i += 32)
                if (t * KEYS + i / D < N) {
                    to[i] = K[base + (size_t)t * KEYS * D + i];
                    to[KEYS * D + i] = V[base + (size_t)t * KEYS * D + i];
                }
            (void)full[s].arrive();
        }
        return;
    }
    const int query = blockIdx.x * 64 + threadIdx.x;
    const half* q = Q + base + (size_t)min(query, N - 1) * D;
    float m = -INFINITY, sum = 0;
    for (int d = 0; d < D; ++d) acc[d * 64 + threadIdx.x] = 0;
    for (int t = 0; t < steps; ++t) {
        const int s = t % STAGES;
        full[s].arrive_and_wait();
        const half* from = held + s * 2 * KEYS * D;
        for (int j = 0; j < min(KEYS, N - t * KEYS); ++j) {
            float dot = 0;
            for (int d = 0; d < D; ++d) dot += __half2float(q[d]) * __half2float(from[j * D + d]);
            dot *= rsqrtf(D);
            const float larger = fmaxf(m, dot), shrink = expf(m - larger), weight = expf(dot - larger);
            for (int d = 0; d < D; ++d)
                acc[d * 64 + threadIdx.x] =
                    acc[d * 64 + threadIdx.x] * shrink + weight * __half2float(from[(KEYS + j) * D + d]);
            sum = sum * shrink + weight;
            m = larger;
        }
        if (t + STAGES < steps) (void)empty[s].arrive();
    }
    if (query < N)
        for (int d = 0; d < D; ++d) O[base + (size_t)query * D + d] = __float2half(acc[d * 64 + threadIdx.x] / sum);
}
KATA_EXPORT void flash_attn_mma_stages_split_q_shared_kv_swizzle_q(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    const int bytes = 4 * 8 * D * sizeof(half) + 64 * D * sizeof(float);
    cudaFuncSetAttribute(tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    tiles<<<dim3((N + 63) / 64, B * H), 96, bytes, stream>>>(Q, K, V, O, N, D);
}
