// two halves of a block, each with a named barrier of its own and its own part of K
#include "kata.cuh"

__global__ void tiles(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a[2][16][17], b[2][16][17], other[16][16];
    const int half = threadIdx.x / 256, t = threadIdx.x % 256, ty = t / 16, tx = t % 16;
    const int r = blockIdx.y * 16 + ty, q = blockIdx.x * 16 + tx;
    const auto sync = [&] { asm volatile("bar.sync %0, 256;" ::"r"(half + 1) : "memory"); };
    float sum = 0;
    for (int k0 = half * 16; k0 < K; k0 += 32) {
        a[half][ty][tx] = r < M && k0 + tx < K ? A[(size_t)r * K + k0 + tx] : 0.0f;
        b[half][ty][tx] = q < N && k0 + ty < K ? B[(size_t)(k0 + ty) * N + q] : 0.0f;
        sync();
        for (int k = 0; k < 16; ++k) sum += a[half][ty][k] * b[half][k][tx];
        sync();
    }
    if (half) other[ty][tx] = sum;
    __syncthreads();
    if (!half && r < M && q < N) C[(size_t)r * N + q] = sum + other[ty][tx];
}
KATA_EXPORT void sgemm_sliced_k_f32(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    tiles<<<dim3((N + 15) / 16, (M + 15) / 16), 512, 0, stream>>>(A, B, C, M, N, K);
}
