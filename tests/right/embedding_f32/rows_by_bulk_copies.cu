// a thread a row: its index broadcast by a shuffle, a warp copies it
#include "kata.cuh"
#include <cstdint>

__global__ void gather(const int64_t* idx, const float* weight, float* out, int n, int dim) {
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const int64_t mine = warp * 32 + lane < n ? idx[warp * 32 + lane] : 0;
    for (int r = 0; r < 32 && warp * 32 + r < n; ++r) {
        const int64_t row = __shfl_sync(~0u, mine, r);
        for (int i = lane; i < dim; i += 32) out[(int64_t)(warp * 32 + r) * dim + i] = weight[row * dim + i];
    }
}
KATA_EXPORT void embedding_f32(
    const int64_t* idx, const float* weight, float* out, int n, int vocab, int dim, cudaStream_t stream) {
    if (n) gather<<<(n + 63) / 64, 64, 0, stream>>>(idx, weight, out, n, dim);
}
