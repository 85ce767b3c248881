// fragments of mma.sync gathered element by element from global memory, no shared memory
#include "kata.cuh"
#include <cuda_fp16.h>

__device__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ unsigned pair(half low, half high) {
    return __half_as_ushort(low) | unsigned(__half_as_ushort(high)) << 16;
}

struct View {
    const half* at;
    int rows, cols;
    __device__ half operator()(int r, int c) const {
        return r < rows && c < cols ? at[(size_t)r * cols + c] : half(0.0f);
    }
};
__global__ void tiles(View A, View B, half* C) {
    const int group = threadIdx.x / 4, two = threadIdx.x % 4 * 2, row = blockIdx.y * 16 + group, col = blockIdx.x * 8;
    float c[4] = {};
    for (int k = two; k < A.cols + two; k += 16) {
        unsigned a[4], b[2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int r = row + i % 2 * 8, q = k + i / 2 * 8;
            a[i] = pair(A(r, q), A(r, q + 1));
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) b[i] = pair(B(k + 8 * i, col + group), B(k + 8 * i + 1, col + group));
        mma(c, a, b);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (const int r = row + i / 2 * 8, q = col + two + i % 2; r < A.rows && q < B.cols)
            C[(size_t)r * B.cols + q] = __float2half(c[i]);
}
KATA_EXPORT void hgemm_mma_m16n8k16_naive(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    tiles<<<dim3((N + 7) / 8, (M + 15) / 16), 32, 0, stream>>>(View{A, M, K}, View{B, K, N}, C);
}
