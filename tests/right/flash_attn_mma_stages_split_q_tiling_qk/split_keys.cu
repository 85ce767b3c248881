// keys split over the grid in parts of 32, joined by a second kernel
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cmath>

// What one part of the keys gives: maximum, sum, and the sum of the weighted values.
__global__ void parts(const half* Q, const half* K, const half* V, float* scratch, int N, int D, int length) {
    __shared__ float q[1024], weight[32];
    const size_t row = blockIdx.x, base = row / N * N;
    const int first = blockIdx.y * length, count = min(length, N - first);
    float* out = scratch + (row * gridDim.y + blockIdx.y) * (D + 2);
    for (int d = threadIdx.x; d < D; d += 32) q[d] = __half2float(Q[row * D + d]);
    __syncwarp();
    float dot = -INFINITY;
    if (int(threadIdx.x) < count) {
        dot = 0;
        for (int d = 0; d < D; ++d) dot += q[d] * __half2float(K[(base + first + threadIdx.x) * D + d]);
        dot *= rsqrtf(D);
    }
    float most = dot;
    for (int step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    weight[threadIdx.x] = count > 0 && int(threadIdx.x) < count ? expf(dot - most) : 0.0f;
    __syncwarp();
    if (threadIdx.x == 0) {
        float s = 0;
        for (float w : weight) s += w;
        out[0] = most, out[1] = s;
    }
    for (int d = threadIdx.x; d < D; d += 32) {
        float o = 0;
        for (int j = 0; j < count; ++j) o += weight[j] * __half2float(V[(base + first + j) * D + d]);
        out[2 + d] = o;
    }
}
__global__ void join(const float* scratch, half* O, int D, int splits) {
    const size_t row = blockIdx.x;
    const float* from = scratch + row * splits * (D + 2);
    for (int d = threadIdx.x; d < D; d += blockDim.x) {
        float m = -INFINITY, sum = 0, o = 0;
        for (int s = 0; s < splits; ++s) m = fmaxf(m, from[s * (D + 2)]);
        for (int s = 0; s < splits; ++s) {
            const float share = expf(from[s * (D + 2)] - m);
            sum += share * from[s * (D + 2) + 1];
            o += share * from[s * (D + 2) + 2 + d];
        }
        O[row * D + d] = __float2half(o / sum);
    }
}
KATA_EXPORT void flash_attn_mma_stages_split_q_tiling_qk(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    const int splits = (N + 31) / 32;
    float* scratch = nullptr;
    cudaMallocAsync(&scratch, sizeof(float) * B * H * N * splits * (D + 2), stream);
    parts<<<dim3(B * H * N, splits), 32, 0, stream>>>(Q, K, V, scratch, N, D, 32);
    join<<<B * H * N, 64, 0, stream>>>(scratch, O, D, splits);
    cudaFreeAsync(scratch, stream);
}
