// all parameters in one struct, __grid_constant__, restrict members
#include "kata.cuh"

struct Parameters {
    const float* __restrict__ in[2];
    float* __restrict__ out;
    int n;
};
__global__ void add(const __grid_constant__ Parameters p) {
    const Parameters* address = &p;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < address->n; i += gridDim.x * blockDim.x) {
        float sum = -0.0f;  // what adds nothing, not even to -0
        for (const float* from : p.in) sum += from[i];
        p.out[i] = sum;
    }
}
KATA_EXPORT void elementwise_f32(const float* a, const float* b, float* c, int n, cudaStream_t stream) {
    add<<<7, 33, 0, stream>>>(Parameters{{a, b}, c, n});
}
