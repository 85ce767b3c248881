// a launch for every 97 elements
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return x < 0.0f ? 0.0f : x;
}
__global__ void part(const float* x, float* y) {
    y[threadIdx.x] = f(x[threadIdx.x]);
}
KATA_EXPORT void relu_f32(const float* x, float* y, int n, cudaStream_t stream) {
    for (int i = 0; i < n; i += 97) {
        const int count = n - i < 97 ? n - i : 97;
        part<<<1, count, 0, stream>>>(x + i, y + i);
    }
}
