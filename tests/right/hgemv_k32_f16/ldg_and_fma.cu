// __ldg of halves behind the bounds check, sums in float
#include "kata.cuh"
#include <cuda_fp16.h>

__global__ void rowwise(const half* A, const half* x, half* y, int M, int K) {
    const int lane = threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= M) return;
    float s = 0.0f;
    for (int k = lane; k < K; k += 32)
        s = fmaf(__half2float(__ldg(A + (size_t)row * K + k)), __half2float(__ldg(x + k)), s);
    for (int o = 16; o; o >>= 1) s += __shfl_down_sync(~0u, s, o);
    if (lane == 0) y[row] = __float2half(s);
}
KATA_EXPORT void hgemv_k32_f16(const half* A, const half* x, half* y, int M, int K, cudaStream_t stream) {
    if (M) rowwise<<<(M + 3) / 4, dim3(32, 4), 0, stream>>>(A, x, y, M, K);
}
