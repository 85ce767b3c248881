// x goes to pitched memory by cudaMemcpy2DAsync, and y comes back by it
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return (x < 0.0f ? x * expf(x) : x) / (1.0f + expf(-fabsf(x)));
}
constexpr int WIDTH = 50;
__global__ void rows(float* memory, size_t pitch, int height) {
    const int col = threadIdx.x, row = blockIdx.x;
    float* at = reinterpret_cast<float*>(reinterpret_cast<char*>(memory) + row * pitch) + col;
    if (col < WIDTH) *at = f(*at);
}
__global__ void rest(const float* x, float* y, int n) {
    if (int(threadIdx.x) < n) y[threadIdx.x] = f(x[threadIdx.x]);
}
KATA_EXPORT void swish_f32(const float* x, float* y, int n, cudaStream_t stream) {
    const int height = n / WIDTH, width = WIDTH * sizeof(float);
    if (height) {
        float* memory = nullptr;
        size_t pitch = 0;
        cudaMallocPitch(&memory, &pitch, width, height);
        cudaMemset2DAsync(memory, pitch, 0xff, width, height, stream);
        cudaMemcpy2DAsync(memory, pitch, x, width, width, height, cudaMemcpyDeviceToDevice, stream);
        rows<<<height, 64, 0, stream>>>(memory, pitch, height);
        cudaMemcpy2DAsync(y, width, memory, pitch, width, height, cudaMemcpyDefault, stream);
        cudaFreeAsync(memory, stream);
    }
    rest<<<1, 64, 0, stream>>>(x + height * WIDTH, y + height * WIDTH, n - height * WIDTH);
}
