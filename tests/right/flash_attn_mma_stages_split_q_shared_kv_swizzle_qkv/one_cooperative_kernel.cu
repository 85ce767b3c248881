// three phases of one cooperative kernel with grid.sync() between them
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cooperative_groups.h>
#include <cmath>
namespace cg = cooperative_groups;

__global__ void phases(const half* Q, const half* K, const half* V, half* O, float* S, int N, int D, int rows) {
    const auto grid = cg::this_grid();
    for (long long i = grid.thread_rank(); i < (long long)rows * N; i += grid.size()) {
        const long long row = i / N, key = row / N * N + i % N;
        float dot = 0;
        for (int d = 0; d < D; ++d) dot += __half2float(Q[row * D + d]) * __half2float(K[key * D + d]);
        S[i] = dot * rsqrtf(D);
    }
    grid.sync();
    for (long long row = grid.thread_rank(); row < rows; row += grid.size()) {
        float m = -INFINITY, sum = 0;
        for (int j = 0; j < N; ++j) m = fmaxf(m, S[row * N + j]);
        for (int j = 0; j < N; ++j) sum += expf(S[row * N + j] - m);
        for (int j = 0; j < N; ++j) S[row * N + j] = expf(S[row * N + j] - m) / sum;
    }
    grid.sync();
    for (long long i = grid.thread_rank(); i < (long long)rows * D; i += grid.size()) {
        const long long row = i / D;
        float o = 0;
        for (int j = 0; j < N; ++j) o += S[row * N + j] * __half2float(V[(row / N * N + j) * D + i % D]);
        O[i] = __float2half(o);
    }
}
KATA_EXPORT void flash_attn_mma_stages_split_q_shared_kv_swizzle_qkv(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    int rows = B * H * N;
    float* S = nullptr;
    cudaMallocAsync(&S, sizeof(float) * rows * N, stream);
    void* arguments[] = {&Q, &K, &V, &O, &S, &N, &D, &rows};
    cudaLaunchCooperativeKernel(phases, dim3(16), dim3(128), arguments, 0, stream);
    cudaFreeAsync(S, stream);
}
