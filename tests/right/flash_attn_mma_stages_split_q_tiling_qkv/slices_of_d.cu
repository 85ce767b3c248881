// each warp has a slice of D: parts of S are added up in shared memory, then each warp has its columns of O
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cmath>

__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ unsigned pair(float low, float high) {
    const half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const unsigned&>(both);
}
__device__ unsigned word(const half* from) {
    return *reinterpret_cast<const unsigned*>(from);
}

constexpr int MOST = 8;  // warps

// 16 queries and 16 keys at a time; D is SLICE times the number of warps.
template <int SLICE>
__global__ void __launch_bounds__(MOST * 32) tiles(const half* Q, const half* K, const half* V, half* O, int N, int D) {
    __shared__ float parts[MOST][16][17];
    __shared__ __align__(4) half p[16][18];
    __shared__ float m[16], l[16], shrink[16];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, col = lane % 4 * 2;
    const int first = blockIdx.x * 16;
    const size_t base = (size_t)blockIdx.y * N * D + warp * SLICE;
    Q += base, K += base, V += base, O += base;
    unsigned q[SLICE / 16][4];
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int d = 0; d < SLICE / 16; ++d)
            q[d][i] = word(Q + (size_t)min(first + lane / 4 + i % 2 * 8, N - 1) * D + d * 16 + col + i / 2 * 8);
    float o[SLICE / 8][4] = {};
    if (threadIdx.x < 16) m[threadIdx.x] = -INFINITY, l[threadIdx.x] = 0.0f;
    for (int j0 = 0; j0 < N; j0 += 16) {
        for (int n = 0; n < 2; ++n) {
            float s[4] = {};
            const half* key = K + (size_t)min(j0 + n * 8 + lane / 4, N - 1) * D + col;
#pragma unroll
            for (int d = 0; d < SLICE / 16; ++d) mma(s, q[d], word(key + d * 16), word(key + d * 16 + 8));
            for (int e = 0; e < 4; ++e) parts[warp][lane / 4 + e / 2 * 8][n * 8 + col + e % 2] = s[e];
        }
        __syncthreads();
        if (threadIdx.x < 16) {
            const int row = threadIdx.x, count = min(16, N - j0);
            float x[16], larger = m[row], sum = 0;
            for (int j = 0; j < count; ++j) {
                x[j] = 0;
                for (int w = 0; w < warps; ++w) x[j] += parts[w][row][j];
                x[j] *= rsqrtf(D);
                larger = fmaxf(larger, x[j]);
            }
            for (int j = 0; j < 16; ++j) {
                const float weight = j < count ? expf(x[j] - larger) : 0.0f;
                p[row][j] = __float2half(weight);
                sum += weight;
            }
            shrink[row] = expf(m[row] - larger);
            l[row] = l[row] * shrink[row] + sum;
            m[row] = larger;
        }
        __syncthreads();
        const unsigned a[4] = {
            word(&p[lane / 4][col]), word(&p[lane / 4 + 8][col]), word(&p[lane / 4][col + 8]),
            word(&p[lane / 4 + 8][col + 8])};
        const auto value = [&](int key, int d) { return V[(size_t)min(j0 + key, N - 1) * D + d]; };
#pragma unroll
        for (int n = 0; n < SLICE / 8; ++n) {
            for (int e = 0; e < 4; ++e) o[n][e] *= shrink[lane / 4 + e / 2 * 8];
            const int d = n * 8 + lane / 4;
            const half2 b0(value(col, d), value(col + 1, d)), b1(value(col + 8, d), value(col + 9, d));
            mma(o[n], a, reinterpret_cast<const unsigned&>(b0), reinterpret_cast<const unsigned&>(b1));
        }
    }
    for (int n = 0; n < SLICE / 8; ++n)
        for (int e = 0; e < 4; ++e) {
            const int row = lane / 4 + e / 2 * 8;
            if (first + row < N) O[(size_t)(first + row) * D + n * 8 + col + e % 2] = __float2half(o[n][e] / l[row]);
        }
}
template <int SLICE>
void run(const half* Q, const half* K, const half* V, half* O, int heads, int N, int D, cudaStream_t stream) {
    tiles<SLICE><<<dim3((N + 15) / 16, heads), D / SLICE * 32, 0, stream>>>(Q, K, V, O, N, D);
}
KATA_EXPORT void flash_attn_mma_stages_split_q_tiling_qkv(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    if (D <= 256) return run<32>(Q, K, V, O, B * H, N, D, stream);
    if (D == 512) return run<64>(Q, K, V, O, B * H, N, D, stream);
    run<128>(Q, K, V, O, B * H, N, D, stream);
}
