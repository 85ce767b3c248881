// mma of tf32 on fragments from global memory, keys in the order that C has; four warps split the keys
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cmath>

// A half is a tf32 without rounding; a weight is rounded.
__device__ unsigned tf32(float value) {
    unsigned result;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(value));
    return result;
}
__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 queries a block. Warp w has the keys of tiles w, w + 4, ...; their sums are joined in shared memory, in order.
template <int D>
__global__ void __launch_bounds__(128) tiles(const half* Q, const half* K, const half* V, half* O, int N) {
    extern __shared__ float joined[];  // [4][16][D] sums of O
    __shared__ float maxima[4][16], sums[4][16];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane / 4, col = lane % 4;
    const int first = blockIdx.x * 16;
    const size_t base = (size_t)blockIdx.y * N * D;
    unsigned q[D / 8][4];
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int d = 0; d < D / 8; ++d)
            q[d][i] =
                tf32(__half2float(Q[base + (size_t)min(first + row + i % 2 * 8, N - 1) * D + d * 8 + col + i / 2 * 4]));
    float o[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {};
    for (int j0 = warp * 8; j0 < N; j0 += 32) {
        float s[4] = {};
        const half* k = K + base + (size_t)min(j0 + row, N - 1) * D + col;
#pragma unroll
        for (int d = 0; d < D / 8; ++d) mma(s, q[d], tf32(__half2float(k[d * 8])), tf32(__half2float(k[d * 8 + 4])));
        for (int e = 0; e < 4; ++e) s[e] = j0 + col * 2 + e % 2 < N ? s[e] * rsqrtf(D) : -INFINITY;
        for (int r = 0; r < 2; ++r) {
            float larger = fmaxf(m[r], fmaxf(s[2 * r], s[2 * r + 1]));
            larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 1));
            larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 2));
            const float shrink = expf(m[r] - larger);
            m[r] = larger;
            for (int e = 2 * r; e < 2 * r + 2; ++e) s[e] = expf(s[e] - larger);
            l[r] = l[r] * shrink + s[2 * r] + s[2 * r + 1];
#pragma unroll
            for (int d = 0; d < D / 8; ++d) o[d][2 * r] *= shrink, o[d][2 * r + 1] *= shrink;
        }
        // Column c of A is key 2c, and column c + 4 is key 2c + 1: no value leaves its lane.
        const unsigned p[4] = {tf32(s[0]), tf32(s[2]), tf32(s[1]), tf32(s[3])};
        const half* even = V + base + (size_t)min(j0 + col * 2, N - 1) * D + row;
        const half* odd = V + base + (size_t)min(j0 + col * 2 + 1, N - 1) * D + row;
#pragma unroll
        for (int d = 0; d < D / 8; ++d) mma(o[d], p, tf32(__half2float(even[d * 8])), tf32(__half2float(odd[d * 8])));
    }
    for (int r = 0; r < 2; ++r) {
        l[r] += __shfl_xor_sync(~0u, l[r], 1);
        l[r] += __shfl_xor_sync(~0u, l[r], 2);
        if (col == 0) maxima[warp][row + r * 8] = m[r], sums[warp][row + r * 8] = l[r];
#pragma unroll
        for (int d = 0; d < D / 8; ++d)
            for (int e = 0; e < 2; ++e) joined[(warp * 16 + row + r * 8) * D + d * 8 + col * 2 + e] = o[d][2 * r + e];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * D; i += 128) {
        const int query = i / D;
        float larger = -INFINITY, sum = 0, total = 0;
        for (int w = 0; w < 4; ++w) larger = fmaxf(larger, maxima[w][query]);
        for (int w = 0; w < 4; ++w) {
            const float share = expf(maxima[w][query] - larger);
            sum += share * sums[w][query];
            total += share * joined[w * 16 * D + i];
        }
        if (first + query < N) O[base + (size_t)first * D + i] = __float2half(total / sum);
    }
}
template <int D>
void run(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    const int bytes = 4 * 16 * D * sizeof(float);
    cudaFuncSetAttribute(tiles<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    tiles<D><<<dim3((N + 15) / 16, heads), 128, bytes, stream>>>(Q, K, V, O, N);
}
KATA_EXPORT void flash_attn_mma_stages_split_kv_acc_f32(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    if (D == 32) run<32>(Q, K, V, O, B * H, N, stream);
    if (D == 64) run<64>(Q, K, V, O, B * H, N, stream);
    if (D == 96) run<96>(Q, K, V, O, B * H, N, stream);
    if (D == 128) run<128>(Q, K, V, O, B * H, N, stream);
}
