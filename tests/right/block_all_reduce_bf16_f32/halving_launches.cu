// launches that halve a scratch vector until one element is left
#include "kata.cuh"
#include <cuda_bf16.h>

__global__ void widen(const __nv_bfloat16* x, float* s, int n, int room) {
    for (int i = blockIdx.x * 64 + threadIdx.x; i < room; i += gridDim.x * 64)
        s[i] = i < n ? __bfloat162float(x[i]) : 0.0f;
}
__global__ void halve(float* s, int half) {
    for (int i = blockIdx.x * 64 + threadIdx.x; i < half; i += gridDim.x * 64) s[i] += s[i + half];
}
KATA_EXPORT void block_all_reduce_bf16_f32(const __nv_bfloat16* x, float* y, int n, cudaStream_t stream) {
    int room = 1;
    while (room < n) room *= 2;
    float* s = nullptr;
    cudaMalloc(&s, room * sizeof(float));
    widen<<<8, 64, 0, stream>>>(x, s, n, room);
    for (int half = room / 2; half; half /= 2) halve<<<8, 64, 0, stream>>>(s, half);
    cudaMemcpyAsync(y, s, sizeof *y, cudaMemcpyDeviceToDevice, stream);
    cudaFree(s);
}
