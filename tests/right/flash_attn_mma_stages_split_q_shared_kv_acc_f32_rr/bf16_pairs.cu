// each half as a sum of two bf16, products by mma of bf16; two warps, tiles of 16 keys
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cmath>

// value = high + low: 8 bits of it each.
struct Parts {
    unsigned high, low;
};
__device__ Parts parts(float first, float second) {
    const __nv_bfloat162 high = __floats2bfloat162_rn(first, second);
    const __nv_bfloat162 low = __floats2bfloat162_rn(first - __low2float(high), second - __high2float(high));
    return {reinterpret_cast<const unsigned&>(high), reinterpret_cast<const unsigned&>(low)};
}
__device__ Parts parts(const half* from) {
    return parts(__half2float(from[0]), __half2float(from[1]));
}
__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ void product(
    float (&c)[4], const unsigned (&high)[4], const unsigned (&low)[4], const Parts& b0, const Parts& b1) {
    mma(c, low, b0.low, b1.low);
    mma(c, low, b0.high, b1.high);
    mma(c, high, b0.low, b1.low);
    mma(c, high, b0.high, b1.high);
}

template <int D>
__global__ void __launch_bounds__(64) tiles(const half* Q, const half* K, const half* V, half* O, int N) {
    __shared__ half k[16][D + 2], v[16][D + 2];
    const int lane = threadIdx.x % 32, row = lane / 4, col = lane % 4 * 2;
    const int first = blockIdx.x * 32 + threadIdx.x / 32 * 16;
    const size_t base = (size_t)blockIdx.y * N * D;
    unsigned q[D / 16][4], q_low[D / 16][4];
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
            const Parts both =
                parts(Q + base + (size_t)min(first + row + i % 2 * 8, N - 1) * D + d * 16 + col + i / 2 * 8);
            q[d][i] = both.high, q_low[d][i] = both.low;
        }
    float o[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {};
    for (int j0 = 0; j0 < N; j0 += 16) {
        for (int i = threadIdx.x; i < 16 * D; i += 64) {
            const size_t at = base + (size_t)j0 * D + i;
            k[i / D][i % D] = j0 + i / D < N ? K[at] : half(0.0f);
            v[i / D][i % D] = j0 + i / D < N ? V[at] : half(0.0f);
        }
        __syncthreads();
        float s[2][4] = {};
#pragma unroll
        for (int d = 0; d < D / 16; ++d)
            for (int n = 0; n < 2; ++n) {
                const half* at = &k[n * 8 + row][d * 16 + col];
                product(s[n], q[d], q_low[d], parts(at), parts(at + 8));
            }
        for (int n = 0; n < 2; ++n)
            for (int e = 0; e < 4; ++e) s[n][e] = j0 + n * 8 + col + e % 2 < N ? s[n][e] * rsqrtf(D) : -INFINITY;
        for (int r = 0; r < 2; ++r) {
            float larger = fmaxf(fmaxf(s[0][2 * r], s[0][2 * r + 1]), fmaxf(s[1][2 * r], s[1][2 * r + 1]));
            larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 1));
            larger = fmaxf(m[r], fmaxf(larger, __shfl_xor_sync(~0u, larger, 2)));
            const float shrink = expf(m[r] - larger);
            m[r] = larger;
            l[r] *= shrink;
            for (int n = 0; n < 2; ++n)
                for (int e = 2 * r; e < 2 * r + 2; ++e) l[r] += s[n][e] = expf(s[n][e] - larger);
#pragma unroll
            for (int d = 0; d < D / 8; ++d) o[d][2 * r] *= shrink, o[d][2 * r + 1] *= shrink;
        }
        unsigned p[4], p_low[4];
        for (int i = 0; i < 4; ++i) {
            const Parts both = parts(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
            p[i] = both.high, p_low[i] = both.low;
        }
#pragma unroll
        for (int d = 0; d < D / 8; ++d) {
            const auto value = [&](int key) { return __half2float(v[key][d * 8 + row]); };
            product(o[d], p, p_low, parts(value(col), value(col + 1)), parts(value(col + 8), value(col + 9)));
        }
        __syncthreads();
    }
    for (int r = 0; r < 2; ++r) {
        l[r] += __shfl_xor_sync(~0u, l[r], 1);
        l[r] += __shfl_xor_sync(~0u, l[r], 2);
        const int query = first + row + r * 8;
        if (query < N)
            for (int d = 0; d < D / 8; ++d)
                for (int e = 0; e < 2; ++e)
                    O[base + (size_t)query * D + d * 8 + col + e] = __float2half(o[d][2 * r + e] / l[r]);
    }
}
template <int D>
void run(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    tiles<D><<<dim3((N + 31) / 32, heads), 64, 0, stream>>>(Q, K, V, O, N);
}
KATA_EXPORT void flash_attn_mma_stages_split_q_shared_kv_acc_f32_rr(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    if (D == 32) run<32>(Q, K, V, O, B * H, N, stream);
    if (D == 64) run<64>(Q, K, V, O, B * H, N, stream);
    if (D == 96) run<96>(Q, K, V, O, B * H, N, stream);
    if (D == 128) run<128>(Q, K, V, O, B * H, N, stream);
}
