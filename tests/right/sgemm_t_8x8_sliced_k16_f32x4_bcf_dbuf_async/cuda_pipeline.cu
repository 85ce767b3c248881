// __pipeline_memcpy_async with zfill, A row-major in padded shared memory
#include "kata.cuh"
#include <cuda_pipeline.h>

constexpr int BM = 128, BN = 128, BK = 16, THREADS = 256, PAD = 4;

__global__ void __launch_bounds__(THREADS, 2) gemm(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ __align__(16) float a[2][BM][BK + PAD];
    __shared__ __align__(16) float b[2][BK][BN];
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    auto load = [&](int stage, int k0) {
#pragma unroll
        for (int u = 0; u < 2; ++u) {
            const int i = threadIdx.x + u * THREADS;
            const int ar = i / 4, ac = i % 4 * 4, br = i / 32, bc = i % 32 * 4;
            const bool in_a = row0 + ar < M && k0 + ac < K;
            __pipeline_memcpy_async(
                &a[stage][ar][ac], in_a ? A + static_cast<size_t>(row0 + ar) * K + k0 + ac : A, 16, in_a ? 0 : 16);
            const bool in_b = k0 + br < K && col0 + bc < N;
            __pipeline_memcpy_async(
                &b[stage][br][bc], in_b ? B + static_cast<size_t>(k0 + br) * N + col0 + bc : B, 16, in_b ? 0 : 16);
        }
        __pipeline_commit();
    };
    float acc[8][8] = {};
    load(0, 0);
    int stage = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        if (k0 + BK < K) {
            load(stage ^ 1, k0 + BK);
            __pipeline_wait_prior(1);
        } else {
            __pipeline_wait_prior(0);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float av[8], bv[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) av[i] = a[stage][ty * 8 + i][k];
            *reinterpret_cast<float4*>(bv) = *reinterpret_cast<float4*>(&b[stage][k][tx * 4]);
            *reinterpret_cast<float4*>(bv + 4) = *reinterpret_cast<float4*>(&b[stage][k][tx * 4 + 64]);
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) acc[i][j] += av[i] * bv[j];
        }
        __syncthreads();
        stage ^= 1;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int r = row0 + ty * 8 + i;
        if (r >= M) continue;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int c = col0 + tx * 4 + h * 64;
            if (c < N)
                *reinterpret_cast<float4*>(C + static_cast<size_t>(r) * N + c) =
                    make_float4(acc[i][4 * h], acc[i][4 * h + 1], acc[i][4 * h + 2], acc[i][4 * h + 3]);
        }
    }
}

KATA_EXPORT void sgemm_t_8x8_sliced_k16_f32x4_bcf_dbuf_async(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    gemm<<<dim3((N - 1) / BN + 1, (M - 1) / BM + 1), THREADS, 0, stream>>>(A, B, C, M, N, K);
}
