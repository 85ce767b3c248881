// each float as a sum of three bf16, products on Tensor Cores
#include "kata.cuh"
#include <cuda_bf16.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;
using bf16 = __nv_bfloat16;
// A float is the sum of three bf16, to its last bit: six of the nine products matter.
__device__ void split(float v, bf16* to, int apart) {
    for (int p = 0; p < 3; ++p) {
        const bf16 part = __float2bfloat16_rz(v);
        to[p * apart] = part;
        v -= __bfloat162float(part);
    }
}
__global__ void tiles(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ alignas(32) bf16 a[3][256], b[3][256];
    __shared__ alignas(32) float c[256];
    const int row0 = blockIdx.y * 16, col0 = blockIdx.x * 16;
    float sum[8] = {};
    for (int k0 = 0; k0 < K; k0 += 16) {
        for (int i = threadIdx.x; i < 256; i += 32) {
            const int r = i / 16, q = i % 16;
            split(row0 + r < M && k0 + q < K ? A[(size_t)(row0 + r) * K + k0 + q] : 0.0f, a[0] + i, 256);
            split(k0 + r < K && col0 + q < N ? B[(size_t)(k0 + r) * N + col0 + q] : 0.0f, b[0] + i, 256);
        }
        __syncwarp();
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> f;
        wmma::fill_fragment(f, 0.0f);
        for (int order = 4; order >= 0; --order)
            for (int p = 0; p < 3; ++p) {
                if (order - p < 0 || order - p > 2) continue;
                wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> fa;
                wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::row_major> fb;
                wmma::load_matrix_sync(fa, a[p], 16);
                wmma::load_matrix_sync(fb, b[order - p], 16);
                wmma::mma_sync(f, fa, fb, f);
            }
        wmma::store_matrix_sync(c, f, 16, wmma::mem_row_major);
        __syncwarp();
        for (int i = 0; i < 8; ++i) sum[i] += c[threadIdx.x + 32 * i];
        __syncwarp();
    }
    for (int i = 0; i < 8; ++i) {
        const int r = row0 + (threadIdx.x + 32 * i) / 16, q = col0 + threadIdx.x % 16;
        if (r < M && q < N) C[(size_t)r * N + q] = sum[i];
    }
}
KATA_EXPORT void sgemm_naive_f32(const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    tiles<<<dim3((N + 15) / 16, (M + 15) / 16), 32, 0, stream>>>(A, B, C, M, N, K);
}
