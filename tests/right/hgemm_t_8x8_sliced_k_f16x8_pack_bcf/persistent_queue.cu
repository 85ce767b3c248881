// persistent blocks take tiles from a queue in a __device__ variable
#include "kata.cuh"
#include <cuda_fp16.h>

__device__ int next_tile;
__global__ void workers(const half* A, const half* B, half* C, int M, int N, int K) {
    __shared__ int tile;
    const int across = (N + 15) / 16, tiles = across * ((M + 15) / 16);
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0 && threadIdx.y == 0) tile = atomicAdd(&next_tile, 1);
        __syncthreads();
        if (tile >= tiles) return;
        const int r = tile / across * 16 + threadIdx.y, q = tile % across * 16 + threadIdx.x;
        if (r >= M || q >= N) continue;
        float sum = 0;
        for (int k = 0; k < K; ++k) sum += __half2float(A[(size_t)r * K + k]) * __half2float(B[(size_t)k * N + q]);
        C[(size_t)r * N + q] = __float2half_rn(sum);
    }
}
KATA_EXPORT void hgemm_t_8x8_sliced_k_f16x8_pack_bcf(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    void* queue = nullptr;
    cudaGetSymbolAddress(&queue, next_tile);
    cudaMemsetAsync(queue, 0, sizeof(int), stream);
    workers<<<3, dim3(16, 16), 0, stream>>>(A, B, C, M, N, K);
}
