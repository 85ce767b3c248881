// keys in the outer loop: a launch for 64 keys, sums and maxima of all queries in scratch, wmma m8n32k16
#include "kata.cuh"
#include <cuda_fp16.h>
#include <mma.h>
#include <cmath>

namespace wmma = nvcuda::wmma;
constexpr int KEYS = 64;

// What all queries have so far; the first launch begins, the last one divides.
struct State {
    float *o, *m, *l;
};

// A block has 8 queries of one head: each of two warps has 32 keys, then half of O's columns at a time.
__global__ void __launch_bounds__(64)
    add_keys(const half* Q, const half* K, const half* V, half* O, State state, int j0, int N, int D) {
    extern __shared__ __align__(32) unsigned char raw[];
    half *q = reinterpret_cast<half*>(raw), *kv = q + 8 * D, *p = kv + KEYS * D;
    float *s = reinterpret_cast<float*>(p + 8 * KEYS), *o = s + 8 * KEYS, *shrink = o + 8 * D;
    const int warp = threadIdx.x / 32, first = blockIdx.x * 8, count = min(KEYS, N - j0);
    const size_t base = (size_t)blockIdx.y * N * D, row0 = (size_t)blockIdx.y * N + first;
    for (int i = threadIdx.x; i < 8 * D; i += 64) q[i] = first + i / D < N ? Q[base + first * D + i] : half(0.0f);
    for (int i = threadIdx.x; i < KEYS * D; i += 64) kv[i] = i / D < count ? K[base + (size_t)j0 * D + i] : half(0.0f);
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 8, 32, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::accumulator, 8, 32, 16, float> c;
    wmma::fill_fragment(c, 0.0f);
    for (int d = 0; d < D; d += 16) {
        wmma::fragment<wmma::matrix_b, 8, 32, 16, half, wmma::col_major> b;
        wmma::load_matrix_sync(a, q + d, D);
        wmma::load_matrix_sync(b, kv + warp * 32 * D + d, D);
        wmma::mma_sync(c, a, b, c);
    }
    wmma::store_matrix_sync(s + warp * 32, c, KEYS, wmma::mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < KEYS * D; i += 64) kv[i] = i / D < count ? V[base + (size_t)j0 * D + i] : half(0.0f);
    if (threadIdx.x < 8) {
        const int row = threadIdx.x;
        const bool there = first + row < N, begun = j0 > 0 && there;
        const float before = begun ? state.m[row0 + row] : -INFINITY;
        float larger = before, sum = 0;
        for (int j = 0; j < count; ++j) larger = fmaxf(larger, s[row * KEYS + j] * rsqrtf(D));
        for (int j = 0; j < KEYS; ++j) {
            const float weight = j < count ? expf(s[row * KEYS + j] * rsqrtf(D) - larger) : 0.0f;
            p[row * KEYS + j] = __float2half(weight);
            sum += weight;
        }
        shrink[row] = expf(before - larger);
        const float total = (begun ? state.l[row0 + row] : 0.0f) * shrink[row] + sum;
        if (there) state.m[row0 + row] = larger, state.l[row0 + row] = total;
        shrink[8 + row] = total;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 8 * D; i += 64)
        o[i] = j0 > 0 && first + i / D < N ? state.o[row0 * D + i] * shrink[i / D] : 0.0f;
    __syncthreads();
    for (int d = warp * 32; d < D; d += 64) {
        wmma::load_matrix_sync(c, o + d, D, wmma::mem_row_major);
        for (int j = 0; j < KEYS; j += 16) {
            wmma::fragment<wmma::matrix_b, 8, 32, 16, half, wmma::row_major> b;
            wmma::load_matrix_sync(a, p + j, KEYS);
            wmma::load_matrix_sync(b, kv + j * D + d, D);
            wmma::mma_sync(c, a, b, c);
        }
        wmma::store_matrix_sync(o + d, c, D, wmma::mem_row_major);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 8 * D; i += 64)
        if (first + i / D < N) {
            state.o[row0 * D + i] = o[i];
            if (j0 + KEYS >= N) O[base + first * D + i] = __float2half(o[i] / shrink[8 + i / D]);
        }
}
KATA_EXPORT void flash_attn_mma_stages_split_q_shared_qkv_swizzle_qk(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    const size_t rows = (size_t)B * H * N;
    State state;
    cudaMallocAsync(&state.o, rows * D * sizeof(float), stream);
    cudaMallocAsync(&state.m, rows * sizeof(float), stream);
    cudaMallocAsync(&state.l, rows * sizeof(float), stream);
    const int bytes = (8 * D + KEYS * D + 8 * KEYS) * sizeof(half) + (8 * KEYS + 8 * D + 16) * sizeof(float);
    cudaFuncSetAttribute(add_keys, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    for (int j0 = 0; j0 < N; j0 += KEYS)
        add_keys<<<dim3((N + 7) / 8, B * H), 64, bytes, stream>>>(Q, K, V, O, state, j0, N, D);
    cudaFreeAsync(state.o, stream);
    cudaFreeAsync(state.m, stream);
    cudaFreeAsync(state.l, stream);
}
