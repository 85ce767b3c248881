// cuda::pipeline of two stages, B by memcpy_async of 16 bytes, A by plain stores, wmma of padded tiles
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cuda/pipeline>
#include <mma.h>

namespace wmma = nvcuda::wmma;
constexpr int LD = 24;
__global__ void tiles(const half* A, const half* B, half* C, int M, int N, int K) {
    __shared__ alignas(32) half a[2][32 * LD], b[2][16 * 40];
    __shared__ alignas(32) float c[4][16 * 20];
    const int warp = threadIdx.x / 32, row0 = blockIdx.y * 32, col0 = blockIdx.x * 32;
    auto pipe = cuda::make_pipeline();
    const auto bring = [&](int k0, int s) {
        pipe.producer_acquire();
        for (int i = threadIdx.x; i < 512; i += 128) {
            const int r = i / 16, k = i % 16;
            a[s][r * LD + k] = row0 + r < M && k0 + k < K ? A[(size_t)(row0 + r) * K + k0 + k] : half(0.0f);
        }
        for (int i = threadIdx.x; i < 64; i += 128) {
            const int r = i / 4, q = i % 4 * 8;
            half* to = b[s] + r * 40 + q;
            if (k0 + r < K && col0 + q < N)
                cuda::memcpy_async(to, B + (size_t)(k0 + r) * N + col0 + q, cuda::aligned_size_t<16>(16), pipe);
            else
                *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
        }
        pipe.producer_commit();
    };
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    bring(0, 0);
    for (int k0 = 0, s = 0; k0 < K; k0 += 16, s ^= 1) {
        if (k0 + 16 < K) bring(k0 + 16, s ^ 1);
        if (k0 + 16 < K)
            cuda::pipeline_consumer_wait_prior<1>(pipe);
        else
            cuda::pipeline_consumer_wait_prior<0>(pipe);
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
        wmma::load_matrix_sync(fa, a[s] + warp / 2 * 16 * LD, LD);
        wmma::load_matrix_sync(fb, b[s] + warp % 2 * 16, 40);
        wmma::mma_sync(sum, fa, fb, sum);
        __syncthreads();
        pipe.consumer_release();
    }
    wmma::store_matrix_sync(c[warp], sum, 20, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x % 32; i < 256; i += 32) {
        const int r = row0 + warp / 2 * 16 + i / 16, q = col0 + warp % 2 * 16 + i % 16;
        if (r < M && q < N) C[(size_t)r * N + q] = __float2half(c[warp][i / 16 * 20 + i % 16]);
    }
}
KATA_EXPORT void hgemm_wmma_m16n16k16_naive(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    tiles<<<dim3((N + 31) / 32, (M + 31) / 32), 128, 0, stream>>>(A, B, C, M, N, K);
}
