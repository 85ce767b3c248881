// a raw byte array of shared memory, cast, with a pitch of 17 floats
#include "kata.cuh"

__global__ void tiles(const float* x, float* y, int M, int N) {
    __shared__ __align__(16) unsigned char raw[16 * 17 * sizeof(float)];
    float (*tile)[17] = reinterpret_cast<float (*)[17]>(raw);
    const int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
    if (i < M && j < N) tile[threadIdx.y][threadIdx.x] = x[(size_t)i * N + j];
    __syncthreads();
    const int a = blockIdx.x * 16 + threadIdx.y, b = blockIdx.y * 16 + threadIdx.x;
    if (a < N && b < M) y[(size_t)a * M + b] = tile[threadIdx.x][threadIdx.y];
}
KATA_EXPORT void mat_trans_f32_tiled_padded(const float* x, float* y, int M, int N, cudaStream_t stream) {
    tiles<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16), 0, stream>>>(x, y, M, N);
}
