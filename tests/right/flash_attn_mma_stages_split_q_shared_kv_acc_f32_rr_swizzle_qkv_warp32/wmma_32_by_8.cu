// wmma m32n8k16, 32 queries a warp and a query a lane for the softmax; O stays in fragments, scaled by another fragment
#include "kata.cuh"
#include <cuda_fp16.h>
#include <mma.h>
#include <cmath>

namespace wmma = nvcuda::wmma;
using Acc = wmma::fragment<wmma::accumulator, 32, 8, 16, float>;

// One warp: 32 queries, 16 keys at a time. A fragment of O is scaled by another one that has each row's factor.
template <int D>
__global__ void __launch_bounds__(32) tiles(const half* Q, const half* K, const half* V, half* O, int N) {
    __shared__ __align__(32) half q[32][D], kv[16][D], p[32][16];
    __shared__ __align__(32) float s[32][16], factor[32][8];
    const int lane = threadIdx.x, first = blockIdx.x * 32;
    const size_t base = (size_t)blockIdx.y * N * D;
    const auto load = [&](half* to, const half* from, int rows, int row0) {
        for (int i = lane; i < rows * D; i += 32)
            to[i] = row0 + i / D < N ? from[base + (size_t)row0 * D + i] : half(0.0f);
        __syncwarp();
    };
    const auto spread = [&](Acc& fragment, float value) {
        for (int i = 0; i < 8; ++i) factor[lane][i] = value;
        __syncwarp();
        wmma::load_matrix_sync(fragment, &factor[0][0], 8, wmma::mem_row_major);
        __syncwarp();
    };
    load(&q[0][0], Q, 32, first);
    Acc o[D / 8], scale;
    for (int d = 0; d < D / 8; ++d) wmma::fill_fragment(o[d], 0.0f);
    float m = -INFINITY, l = 0.0f;
    for (int j0 = 0; j0 < N; j0 += 16) {
        load(&kv[0][0], K, 16, j0);
        for (int n = 0; n < 2; ++n) {
            Acc c;
            wmma::fill_fragment(c, 0.0f);
            for (int d = 0; d < D; d += 16) {
                wmma::fragment<wmma::matrix_a, 32, 8, 16, half, wmma::row_major> a;
                wmma::fragment<wmma::matrix_b, 32, 8, 16, half, wmma::col_major> b;
                wmma::load_matrix_sync(a, &q[0][d], D);
                wmma::load_matrix_sync(b, &kv[n * 8][d], D);
                wmma::mma_sync(c, a, b, c);
            }
            wmma::store_matrix_sync(&s[0][n * 8], c, 16, wmma::mem_row_major);
        }
        __syncwarp();
        const int count = min(16, N - j0);
        float larger = m;
        for (int j = 0; j < count; ++j) larger = fmaxf(larger, s[lane][j] * rsqrtf(D));
        const float shrink = expf(m - larger);
        l *= shrink;
        m = larger;
        for (int j = 0; j < 16; ++j) {
            const float weight = j < count ? expf(s[lane][j] * rsqrtf(D) - m) : 0.0f;
            p[lane][j] = __float2half(weight);
            l += weight;
        }
        spread(scale, shrink);
        load(&kv[0][0], V, 16, j0);
        for (int d = 0; d < D / 8; ++d) {
            wmma::fragment<wmma::matrix_a, 32, 8, 16, half, wmma::row_major> a;
            wmma::fragment<wmma::matrix_b, 32, 8, 16, half, wmma::row_major> b;
            for (int i = 0; i < o[d].num_elements; ++i) o[d].x[i] *= scale.x[i];
            wmma::load_matrix_sync(a, &p[0][0], 16);
            wmma::load_matrix_sync(b, &kv[0][d * 8], D);
            wmma::mma_sync(o[d], a, b, o[d]);
        }
        __syncwarp();
    }
    spread(scale, l);
    for (int d = 0; d < D / 8; ++d) {
        for (int i = 0; i < o[d].num_elements; ++i) o[d].x[i] /= scale.x[i];
        wmma::store_matrix_sync(&factor[0][0], o[d], 8, wmma::mem_row_major);
        __syncwarp();
        for (int i = 0; first + lane < N && i < 8; ++i)
            O[base + (size_t)(first + lane) * D + d * 8 + i] = __float2half(factor[lane][i]);
        __syncwarp();
    }
}
template <int D>
void run(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    tiles<D><<<dim3((N + 31) / 32, heads), 32, 0, stream>>>(Q, K, V, O, N);
}
KATA_EXPORT void flash_attn_mma_stages_split_q_shared_kv_acc_f32_rr_swizzle_qkv_warp32(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    if (D == 32) run<32>(Q, K, V, O, B * H, N, stream);
    if (D == 64) run<64>(Q, K, V, O, B * H, N, stream);
    if (D == 96) run<96>(Q, K, V, O, B * H, N, stream);
    if (D == 128) run<128>(Q, K, V, O, B * H, N, stream);
}
