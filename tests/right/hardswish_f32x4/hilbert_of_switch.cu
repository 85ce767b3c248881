// a thread handles one of four elements by a switch, at a warp-divergent place
#include "kata.cuh"

__device__ __forceinline__ float f(float x) {
    return x * (fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f));
}
__global__ void each(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    switch (i % 4) {
        case 0:
            if (i < n) y[i] = f(x[i]);
            break;
        case 3:
            if (i < n) y[i] = f(__ldg(x + i));
            break;
        case 1:
        default:
            if (i < n) y[i] = f(*static_cast<const volatile float*>(x + i));
    }
}
KATA_EXPORT void hardswish_f32x4(const float* x, float* y, int n, cudaStream_t stream) {
    if (n) each<<<(n + 95) / 96, 96, 0, stream>>>(x, y, n);
}
