// two passes over the keys: maxima and sums first, then weights that need no rescaling; columns of O split over warps
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

constexpr int KEYS = 64, WARPS = 4;

// S of 16 queries and one of a warp's two groups of 8 keys, fragments from global memory.
template <int D>
__device__ void logits(float (&s)[4], const half* Q, const half* K, int first, int j0, int N) {
    const int lane = threadIdx.x % 32, col = lane % 4 * 2;
    const half* upper = Q + (size_t)min(first + lane / 4, N - 1) * D + col;
    const half* lower = Q + (size_t)min(first + lane / 4 + 8, N - 1) * D + col;
    const half* key = K + (size_t)min(j0 + lane / 4, N - 1) * D + col;
    for (int e = 0; e < 4; ++e) s[e] = 0.0f;
#pragma unroll 4
    for (int d = 0; d < D; d += 16) {
        const unsigned a[4] = {word(upper + d), word(lower + d), word(upper + d + 8), word(lower + d + 8)};
        mma(s, a, word(key + d), word(key + d + 8));
    }
    for (int e = 0; e < 4; ++e) s[e] = j0 + col + e % 2 < N ? s[e] * rsqrtf(D) : -INFINITY;
}

template <int D>
__global__ void __launch_bounds__(WARPS * 32) tiles(const half* Q, const half* K, const half* V, half* O, int N) {
    __shared__ __align__(4) half p[16][KEYS + 8];
    __shared__ float maxima[WARPS][16], sums[WARPS][16];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * 16, col = lane % 4 * 2;
    const size_t base = (size_t)blockIdx.y * N * D;
    Q += base, K += base, V += base, O += base;
    float m[2] = {-INFINITY, -INFINITY}, l[2] = {}, s[4];
    for (int j0 = warp * 8; j0 < N; j0 += WARPS * 8) {
        logits<D>(s, Q, K, first, j0, N);
        for (int r = 0; r < 2; ++r) {
            const float larger = fmaxf(m[r], fmaxf(s[2 * r], s[2 * r + 1]));
            if (larger == -INFINITY) continue;
            l[r] = l[r] * expf(m[r] - larger) + expf(s[2 * r] - larger) + expf(s[2 * r + 1] - larger);
            m[r] = larger;
        }
    }
    for (int r = 0; r < 2; ++r) {
        float larger = fmaxf(m[r], __shfl_xor_sync(~0u, m[r], 1));
        larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 2));
        float sum = larger == -INFINITY ? 0.0f : l[r] * expf(m[r] - larger);
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (col == 0) maxima[warp][lane / 4 + r * 8] = larger, sums[warp][lane / 4 + r * 8] = sum;
    }
    __syncthreads();
    for (int r = 0; r < 2; ++r) {
        const int row = lane / 4 + r * 8;
        m[r] = -INFINITY, l[r] = 0.0f;
        for (int w = 0; w < WARPS; ++w) m[r] = fmaxf(m[r], maxima[w][row]);
        for (int w = 0; w < WARPS; ++w) l[r] += sums[w][row] * expf(maxima[w][row] - m[r]);
    }
    constexpr int OWN = D / WARPS;  // columns of O that a warp has
    float o[OWN / 8][4] = {};
    for (int j0 = 0; j0 < N; j0 += KEYS) {
        __syncthreads();
        for (int n = 0; n < 2; ++n) {
            const int key = warp * 16 + n * 8;
            logits<D>(s, Q, K, first, j0 + key, N);
            for (int e = 0; e < 4; ++e)
                p[lane / 4 + e / 2 * 8][key + col + e % 2] = __float2half(expf(s[e] - m[e / 2]));
        }
        __syncthreads();
        for (int j = 0; j < KEYS && j0 + j < N; j += 16) {
            const half* at = &p[lane / 4][j + col];
            const unsigned a[4] = {word(at), word(at + 8 * (KEYS + 8)), word(at + 8), word(at + 8 * (KEYS + 8) + 8)};
            const auto value = [&](int key, int d) { return V[(size_t)min(j0 + j + key, N - 1) * D + d]; };
#pragma unroll
            for (int n = 0; n < OWN / 8; ++n) {
                const int d = warp * OWN + n * 8 + lane / 4;
                const half2 b0(value(col, d), value(col + 1, d)), b1(value(col + 8, d), value(col + 9, d));
                mma(o[n], a, reinterpret_cast<const unsigned&>(b0), reinterpret_cast<const unsigned&>(b1));
            }
        }
    }
    for (int n = 0; n < OWN / 8; ++n)
        for (int e = 0; e < 4; ++e) {
            const int query = first + lane / 4 + e / 2 * 8;
            if (query < N) O[(size_t)query * D + warp * OWN + n * 8 + col + e % 2] = __float2half(o[n][e] / l[e / 2]);
        }
}
template <int D>
void run(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    tiles<D><<<dim3((N + 15) / 16, heads), WARPS * 32, 0, stream>>>(Q, K, V, O, N);
}
KATA_EXPORT void flash_attn_mma_stages_split_q_tiling_qk_acc_f32(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    if (D == 32) run<32>(Q, K, V, O, B * H, N, stream);
    if (D == 64) run<64>(Q, K, V, O, B * H, N, stream);
    if (D == 96) run<96>(Q, K, V, O, B * H, N, stream);
    if (D == 128) run<128>(Q, K, V, O, B * H, N, stream);
    if (D == 256) run<256>(Q, K, V, O, B * H, N, stream);
}
