// 64 threads a tile of 32 x 32, each with 4 x 4 elements 8 apart, sums in float
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int TILE = 32, STEP = 8;
__global__ void tiles(const half* A, const half* B, half* C, int M, int N, int K) {
    __shared__ float a[STEP][TILE + 1], b[STEP][TILE];
    const int tx = threadIdx.x % 8, ty = threadIdx.x / 8, row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
    float c[4][4] = {};
    for (int k0 = 0; k0 < K; k0 += STEP) {
        for (int i = threadIdx.x; i < TILE * STEP; i += 64) {
            const int r = i / STEP, k = i % STEP;
            a[k][r] = row0 + r < M && k0 + k < K ? __half2float(A[(size_t)(row0 + r) * K + k0 + k]) : 0.0f;
            const int kb = i / TILE, cb = i % TILE;
            b[kb][cb] = k0 + kb < K && col0 + cb < N ? __half2float(B[(size_t)(k0 + kb) * N + col0 + cb]) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < STEP; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) c[i][j] += a[k][ty + 8 * i] * b[k][tx + 8 * j];
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
            if (const int r = row0 + ty + 8 * i, q = col0 + tx + 8 * j; r < M && q < N)
                C[(size_t)r * N + q] = __float2half(c[i][j]);
}
KATA_EXPORT void hgemm_t_8x8_sliced_k_f16x4(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    tiles<<<dim3((N + 31) / 32, (M + 31) / 32), 64, 0, stream>>>(A, B, C, M, N, K);
}
