// queries split over warps, sums in float, rows of shared memory padded, zfill at the end
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cstdint>
#include <cuda_pipeline.h>

// 4 warps of 16 query rows; tiles of 64 keys, two stages. Rows of shared memory are padded by 8 halves for ldmatrix.
constexpr int WARPS = 4, THREADS = WARPS * 32, BR = 64, BC = 64, PAD = 8;

__device__ void ldmatrix4(uint32_t (&r)[4], const half* p) {
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(p));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
__device__ void ldmatrix4_t(uint32_t (&r)[4], const half* p) {
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(p));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
__device__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int D>
__global__ void __launch_bounds__(THREADS)
    attention(const half* Q, const half* K, const half* V, half* O, int N, float scale) {
    constexpr int S = D + PAD;
    extern __shared__ __align__(16) half smem[];
    half* const q_s = smem;              // BR x S
    half* const k_s = q_s + BR * S;      // 2 x BC x S
    half* const v_s = k_s + 2 * BC * S;  // 2 x BC x S
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const size_t head = static_cast<size_t>(blockIdx.y) * N * D;
    const int row0 = blockIdx.x * BR;
    auto tile = [&](half* to, const half* from, int first) {
        for (int i = threadIdx.x; i < 64 * (D / 8); i += THREADS) {
            const int r = i / (D / 8), c = i % (D / 8) * 8;
            const bool in = first + r < N;
            __pipeline_memcpy_async(
                to + r * S + c, in ? from + head + static_cast<size_t>(first + r) * D + c : from, 16, in ? 0 : 16);
        }
    };
    tile(q_s, Q, row0);
    tile(k_s, K, 0);
    tile(v_s, V, 0);
    __pipeline_commit();
    float o[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
    uint32_t qf[D / 16][4];
    const int tiles = (N - 1) / BC + 1;
    for (int t = 0; t < tiles; ++t) {
        const int st = t % 2;
        if (t + 1 < tiles) {
            tile(k_s + (st ^ 1) * BC * S, K, (t + 1) * BC);
            tile(v_s + (st ^ 1) * BC * S, V, (t + 1) * BC);
            __pipeline_commit();
            __pipeline_wait_prior(1);
        } else {
            __pipeline_wait_prior(0);
        }
        __syncthreads();
        if (t == 0) {
#pragma unroll
            for (int k = 0; k < D / 16; ++k)
                ldmatrix4(qf[k], q_s + (warp * 16 + lane % 16) * S + k * 16 + lane / 16 * 8);
        }
        float s[BC / 8][4] = {};
#pragma unroll
        for (int k = 0; k < D / 16; ++k) {
#pragma unroll
            for (int n = 0; n < BC / 16; ++n) {
                uint32_t b[4];
                // matrices: keys 0-7 k 0-7, keys 0-7 k 8-15, keys 8-15 k 0-7, keys 8-15 k 8-15
                ldmatrix4(b, k_s + st * BC * S + (n * 16 + lane / 16 * 8 + lane % 8) * S + k * 16 + lane / 8 % 2 * 8);
                mma(s[2 * n], qf[k], b[0], b[1]);
                mma(s[2 * n + 1], qf[k], b[2], b[3]);
            }
        }
        float top[2] = {m[0], m[1]};
#pragma unroll
        for (int n = 0; n < BC / 8; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int key = t * BC + n * 8 + lane % 4 * 2 + e % 2;
                s[n][e] = key < N ? s[n][e] * scale : -INFINITY;
                top[e / 2] = fmaxf(top[e / 2], s[n][e]);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 1));
            top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 2));
            const float old = exp2f(m[h] - top[h]);
            m[h] = top[h];
            l[h] *= old;
#pragma unroll
            for (int d = 0; d < D / 8; ++d) o[d][2 * h] *= old, o[d][2 * h + 1] *= old;
        }
        uint32_t p[BC / 8][2];
#pragma unroll
        for (int n = 0; n < BC / 8; ++n) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const float p0 = exp2f(s[n][2 * h] - m[h]), p1 = exp2f(s[n][2 * h + 1] - m[h]);
                l[h] += p0 + p1;
                const half2 both = __floats2half2_rn(p0, p1);
                p[n][h] = *reinterpret_cast<const uint32_t*>(&both);
            }
        }
#pragma unroll
        for (int k = 0; k < BC / 16; ++k) {
            const uint32_t a[4] = {p[2 * k][0], p[2 * k][1], p[2 * k + 1][0], p[2 * k + 1][1]};
#pragma unroll
            for (int d = 0; d < D / 16; ++d) {
                uint32_t b[4];
                ldmatrix4_t(b, v_s + st * BC * S + (k * 16 + lane % 16) * S + d * 16 + lane / 16 * 8);
                mma(o[2 * d], a, b[0], b[1]);
                mma(o[2 * d + 1], a, b[2], b[3]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        l[h] += __shfl_xor_sync(~0u, l[h], 1);
        l[h] += __shfl_xor_sync(~0u, l[h], 2);
        const int r = row0 + warp * 16 + lane / 4 + h * 8;
        if (r >= N) continue;
#pragma unroll
        for (int d = 0; d < D / 8; ++d)
            *reinterpret_cast<half2*>(O + head + static_cast<size_t>(r) * D + d * 8 + lane % 4 * 2) =
                __floats2half2_rn(o[d][2 * h] / l[h], o[d][2 * h + 1] / l[h]);
    }
}

template <int D>
void run(const half* Q, const half* K, const half* V, half* O, int BH, int N, cudaStream_t stream) {
    const int bytes = (BR + 4 * BC) * (D + PAD) * 2;
    cudaFuncSetAttribute(attention<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const float scale = 1.44269504f / sqrtf(D);
    attention<D><<<dim3((N - 1) / BR + 1, BH), THREADS, bytes, stream>>>(Q, K, V, O, N, scale);
}

KATA_EXPORT void flash_attn_mma_stages_split_kv(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    if (D == 32)
        run<32>(Q, K, V, O, B * H, N, stream);
    else if (D == 64)
        run<64>(Q, K, V, O, B * H, N, stream);
    else if (D == 96)
        run<96>(Q, K, V, O, B * H, N, stream);
    else
        run<128>(Q, K, V, O, B * H, N, stream);
}
