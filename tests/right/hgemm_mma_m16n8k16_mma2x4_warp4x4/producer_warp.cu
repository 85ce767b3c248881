// a producer warp and four consumer warps with cuda::barrier full and empty, mma.sync
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cuda/barrier>

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

using Barrier = cuda::barrier<cuda::thread_scope_block>;
constexpr int STAGES = 3, LD = 24;
// Warp 0 fills the stages, warps 1 to 4 each multiply 16 rows with 8 columns.
__global__ void tiles(const half* A, const half* B, half* C, int M, int N, int K) {
    __shared__ half a[STAGES][64 * LD], b[STAGES][8 * LD];
    __shared__ Barrier full[STAGES], empty[STAGES];
    if (threadIdx.x < STAGES) init(&full[threadIdx.x], 32 + 128), init(&empty[threadIdx.x], 32 + 128);
    __syncthreads();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row0 = blockIdx.y * 64, col0 = blockIdx.x * 8;
    const int steps = (K + 15) / 16;
    if (warp == 0) {
        for (int t = 0; t < steps; ++t) {
            const int s = t % STAGES;
            if (t >= STAGES) empty[s].arrive_and_wait();
            for (int i = lane; i < 64 * 16; i += 32) {
                const int r = row0 + i / 16, k = t * 16 + i % 16;
                a[s][i / 16 * LD + i % 16] = r < M && k < K ? A[(size_t)r * K + k] : half(0.0f);
            }
            for (int i = lane; i < 8 * 16; i += 32) {
                const int q = col0 + i % 8, k = t * 16 + i / 8;
                b[s][i % 8 * LD + i / 8] = q < N && k < K ? B[(size_t)k * N + q] : half(0.0f);
            }
            (void)full[s].arrive();
        }
        return;
    }
    float c[4] = {};
    const int group = lane / 4, two = lane % 4 * 2, row = (warp - 1) * 16 + group;
    for (int t = 0; t < steps; ++t) {
        const int s = t % STAGES;
        full[s].arrive_and_wait();
        const auto word = [](const half* at) { return *reinterpret_cast<const unsigned*>(at); };
        const half *from = a[s] + row * LD + two, *other = b[s] + group * LD + two;
        const unsigned fa[4] = {word(from), word(from + 8 * LD), word(from + 8), word(from + 8 * LD + 8)};
        const unsigned fb[2] = {word(other), word(other + 8)};
        mma(c, fa, fb);
        if (t + STAGES < steps) (void)empty[s].arrive();
    }
    for (int i = 0; i < 4; ++i)
        if (const int r = row0 + row + i / 2 * 8, q = col0 + two + i % 2; r < M && q < N)
            C[(size_t)r * N + q] = __float2half(c[i]);
}
KATA_EXPORT void hgemm_mma_m16n8k16_mma2x4_warp4x4(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    tiles<<<dim3((N + 7) / 8, (M + 63) / 64), 160, 0, stream>>>(A, B, C, M, N, K);
}
