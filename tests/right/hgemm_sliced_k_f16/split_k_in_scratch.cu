// K split over the grid, parts in scratch, joined in order by a second kernel
#include "kata.cuh"
#include <cuda_fp16.h>

__global__ void parts(const half* A, const half* B, float* part, int M, int N, int K) {
    const int i = blockIdx.x * 64 + threadIdx.x, length = (K + gridDim.y - 1) / gridDim.y;
    if (i >= M * N) return;
    float sum = 0;
    for (int k = blockIdx.y * length; k < min(K, (int)(blockIdx.y + 1) * length); ++k)
        sum = fmaf(__half2float(A[i / N * K + k]), __half2float(B[k * N + i % N]), sum);
    part[(size_t)blockIdx.y * M * N + i] = sum;
}
__global__ void join(const float* part, half* C, int count, int splits) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= count) return;
    float sum = 0;
    for (int s = 0; s < splits; ++s) sum += part[(size_t)s * count + i];
    C[i] = __float2half(sum);
}
KATA_EXPORT void hgemm_sliced_k_f16(const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    float* part = nullptr;
    cudaMallocAsync(&part, 3 * sizeof(float) * M * N, stream);
    parts<<<dim3((M * N + 63) / 64, 3), 64, 0, stream>>>(A, B, part, M, N, K);
    join<<<(M * N + 63) / 64, 64, 0, stream>>>(part, C, M * N, 3);
    cudaFreeAsync(part, stream);
}
