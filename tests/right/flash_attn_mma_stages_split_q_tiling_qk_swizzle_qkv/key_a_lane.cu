// a key a lane: half2 products, the maximum by redux on ordered integers, weights by shuffles; any D
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cmath>

// Integers in the order of their floats.
__device__ int ordered(float x) {
    const int bits = __float_as_int(x);
    return bits ^ (bits >> 31 & 0x7fffffff);
}
__device__ float unordered(int key) {
    return __int_as_float(key ^ (key >> 31 & 0x7fffffff));
}

// A warp a query. A lane has the product with one key of 32, and every 32nd column of O.
template <int D>
__global__ void __launch_bounds__(128) queries(const half* Q, const half* K, const half* V, half* O, int N) {
    const int lane = threadIdx.x % 32, query = blockIdx.x * 4 + threadIdx.x / 32;
    if (query >= N) return;
    const size_t base = (size_t)blockIdx.y * N * D;
    const half2* q = reinterpret_cast<const half2*>(Q + base + (size_t)query * D);
    float o[D / 32] = {}, m = -INFINITY, sum = 0;
    for (int j0 = 0; j0 < N; j0 += 32) {
        float x = -INFINITY;
        if (j0 + lane < N) {
            const half2* k = reinterpret_cast<const half2*>(K + base + (size_t)(j0 + lane) * D);
            float2 dot = {};
            for (int d = 0; d < D / 2; ++d) {
                const float2 a = __half22float2(q[d]), b = __half22float2(k[d]);
                dot.x = fmaf(a.x, b.x, dot.x), dot.y = fmaf(a.y, b.y, dot.y);
            }
            x = (dot.x + dot.y) * rsqrtf(D);
        }
        const float larger = fmaxf(m, unordered(__reduce_max_sync(~0u, ordered(x))));
        const float shrink = expf(m - larger), weight = expf(x - larger);
        m = larger;
        sum = sum * shrink + weight;
        for (int i = 0; i < D / 32; ++i) o[i] *= shrink;
        for (int j = 0; j < min(32, N - j0); ++j) {
            const float one = __shfl_sync(~0u, weight, j);
            for (int i = 0; i < D / 32; ++i)
                o[i] = fmaf(one, __half2float(V[base + (size_t)(j0 + j) * D + i * 32 + lane]), o[i]);
        }
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    for (int i = 0; i < D / 32; ++i) O[base + (size_t)query * D + i * 32 + lane] = __float2half(o[i] / sum);
}
template <int D>
void run(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    queries<D><<<dim3((N + 3) / 4, heads), 128, 0, stream>>>(Q, K, V, O, N);
}
KATA_EXPORT void flash_attn_mma_stages_split_q_tiling_qk_swizzle_qkv(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    if (D == 32) run<32>(Q, K, V, O, B * H, N, stream);
    if (D == 64) run<64>(Q, K, V, O, B * H, N, stream);
    if (D == 96) run<96>(Q, K, V, O, B * H, N, stream);
    if (D == 128) run<128>(Q, K, V, O, B * H, N, stream);
    if (D == 256) run<256>(Q, K, V, O, B * H, N, stream);
}
