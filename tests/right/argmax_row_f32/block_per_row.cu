// one block per row, pairs through shuffles and shared memory
#include "kata.cuh"

__device__ bool better(float a, int i, float b, int j) {
    const bool na = a != a, nb = b != b;
    if (na != nb) return na;
    if (!na && a != b) return a > b;
    return i < j;
}

__global__ void argmax_rows(const float* x, int* idx, int cols) {
    __shared__ float vs[8];
    __shared__ int is[8];
    const float* in = x + 1ll * blockIdx.x * cols;
    float best = -INFINITY;
    int at = 0x7fffffff;
    for (int c = threadIdx.x; c < cols; c += 256) {
        const float v = in[c];
        if (better(v, c, best, at)) best = v, at = c;
    }
    for (int m = 16; m; m >>= 1) {
        const float v = __shfl_xor_sync(~0u, best, m);
        const int i = __shfl_xor_sync(~0u, at, m);
        if (better(v, i, best, at)) best = v, at = i;
    }
    if (threadIdx.x % 32 == 0) vs[threadIdx.x / 32] = best, is[threadIdx.x / 32] = at;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w)
            if (better(vs[w], is[w], best, at)) best = vs[w], at = is[w];
        idx[blockIdx.x] = at;
    }
}

KATA_EXPORT void argmax_row_f32(const float* x, int* idx, int rows, int cols, cudaStream_t stream) {
    argmax_rows<<<rows, 256, 0, stream>>>(x, idx, cols);
}
