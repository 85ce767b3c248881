// a tile of 32 x 32 in registers, transposed by shuffles alone
#include "kata.cuh"

__global__ void tiles(const float* x, float* y, int M, int N) {
    const int row0 = blockIdx.y * 32, col0 = blockIdx.x * 32, lane = threadIdx.x;
    float v[32];
#pragma unroll
    for (int r = 0; r < 32; ++r)
        v[r] = row0 + r < M && col0 + lane < N ? x[(size_t)(row0 + r) * N + col0 + lane] : 0.0f;
#pragma unroll
    for (int step = 16; step; step /= 2)
#pragma unroll
        for (int r = 0; r < 32; ++r) {
            if (r & step) continue;
            const bool high = lane & step;
            const float sent = high ? v[r] : v[r | step];
            const float got = __shfl_xor_sync(~0u, sent, step);
            if (high)
                v[r] = got;
            else
                v[r | step] = got;
        }
#pragma unroll
    for (int r = 0; r < 32; ++r)
        if (col0 + r < N && row0 + lane < M) y[(size_t)(col0 + r) * M + row0 + lane] = v[r];
}
KATA_EXPORT void mat_trans_f32_tiled(const float* x, float* y, int M, int N, cudaStream_t stream) {
    tiles<<<dim3((N + 31) / 32, (M + 31) / 32), 32, 0, stream>>>(x, y, M, N);
}
