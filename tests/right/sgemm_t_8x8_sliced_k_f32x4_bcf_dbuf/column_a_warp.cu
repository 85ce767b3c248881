// a warp a row of C: its lanes keep 8 columns each, A broadcast by shuffles
#include "kata.cuh"

__global__ void rows(
    const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    const int row = blockIdx.y, lane = threadIdx.x, col0 = blockIdx.x * 256;
    float c[8] = {};
    for (int k0 = 0; k0 < K; k0 += 32) {
        const float mine = k0 + lane < K ? A[(size_t)row * K + k0 + lane] : 0.0f;
        for (int k = 0; k < min(32, K - k0); ++k) {
            const float a = __shfl_sync(~0u, mine, k);
#pragma unroll
            for (int j = 0; j < 8; ++j)
                if (col0 + j * 32 + lane < N) c[j] = fmaf(a, B[(size_t)(k0 + k) * N + col0 + j * 32 + lane], c[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j)
        if (col0 + j * 32 + lane < N) C[(size_t)row * N + col0 + j * 32 + lane] = c[j];
}
KATA_EXPORT void sgemm_t_8x8_sliced_k_f32x4_bcf_dbuf(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    rows<<<dim3((N + 255) / 256, M), 32, 0, stream>>>(A, B, C, M, N, K);
}
