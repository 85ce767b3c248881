// wmma fragments of 16 x 16, one warp a block, all state in dynamic shared memory
#include "kata.cuh"
#include <cuda_fp16.h>
#include <mma.h>
#include <cmath>

namespace wmma = nvcuda::wmma;
// A warp has 16 queries; logits, weights and sums of O are in shared memory, keys come 16 at a time.
__global__ void tiles(const half* Q, const half* K, const half* V, half* O, int N, int D) {
    extern __shared__ __align__(32) unsigned char raw[];
    half *q = reinterpret_cast<half*>(raw), *kv = q + 16 * D, *p = kv + 16 * D;
    float *s = reinterpret_cast<float*>(p + 256), *o = s + 256, *m = o + 16 * D, *l = m + 16, *shrink = l + 16;
    const int lane = threadIdx.x, first = blockIdx.x * 16;
    const size_t base = (size_t)blockIdx.y * N * D;
    const auto load = [&](half* to, const half* from, int row0) {
        for (int i = lane; i < 16 * D; i += 32)
            to[i] = row0 + i / D < N ? from[base + (size_t)row0 * D + i] : half(0.0f);
        __syncwarp();
    };
    load(q, Q, first);
    for (int i = lane; i < 16 * D; i += 32) o[i] = 0;
    if (lane < 16) m[lane] = -INFINITY, l[lane] = 0;
    __syncwarp();
    for (int j0 = 0; j0 < N; j0 += 16) {
        load(kv, K, j0);
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> logits;
        wmma::fill_fragment(logits, 0.0f);
        for (int d = 0; d < D; d += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
            wmma::load_matrix_sync(a, q + d, D);
            wmma::load_matrix_sync(b, kv + d, D);
            wmma::mma_sync(logits, a, b, logits);
        }
        wmma::store_matrix_sync(s, logits, 16, wmma::mem_row_major);
        __syncwarp();
        if (lane < 16) {
            const int count = min(16, N - j0);
            float larger = m[lane], sum = 0;
            for (int j = 0; j < count; ++j) larger = fmaxf(larger, s[lane * 16 + j] * rsqrtf(D));
            for (int j = 0; j < 16; ++j) {
                const float weight = j < count ? expf(s[lane * 16 + j] * rsqrtf(D) - larger) : 0.0f;
                p[lane * 16 + j] = __float2half(weight);
                sum += weight;
            }
            shrink[lane] = expf(m[lane] - larger);
            l[lane] = l[lane] * shrink[lane] + sum;
            m[lane] = larger;
        }
        __syncwarp();
        for (int i = lane; i < 16 * D; i += 32) o[i] *= shrink[i / D];
        load(kv, V, j0);
        for (int d = 0; d < D; d += 16) {
            wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
            wmma::load_matrix_sync(sum, o + d, D, wmma::mem_row_major);
            wmma::load_matrix_sync(a, p, 16);
            wmma::load_matrix_sync(b, kv + d, D);
            wmma::mma_sync(sum, a, b, sum);
            wmma::store_matrix_sync(o + d, sum, D, wmma::mem_row_major);
        }
        __syncwarp();
    }
    for (int i = lane; i < 16 * D; i += 32)
        if (first + i / D < N) O[base + (size_t)first * D + i] = __float2half(o[i] / l[i / D]);
}
KATA_EXPORT void flash_attn_mma_stages_split_q_shared_qkv_swizzle_q(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    const int bytes = (2 * 16 * D + 256) * sizeof(half) + (256 + 16 * D + 48) * sizeof(float);
    cudaFuncSetAttribute(tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    tiles<<<dim3((N + 15) / 16, B * H), 32, bytes, stream>>>(Q, K, V, O, N, D);
}
