// S and O transposed: keys are the rows of K Q^T, movmatrix turns the weights for V^T P^T
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
// Four 8 x 8 pieces of shared memory as A of m16n8k16.
template <bool TRANSPOSED>
__device__ void load_a(unsigned (&a)[4], const half* row) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(at)
                     : "memory");
}
__device__ unsigned turned(unsigned piece) {
    unsigned result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(piece));
    return result;
}

// Four warps have 8 queries each; 16 keys at a time.
template <int D>
__global__ void __launch_bounds__(128) columns(const half* Q, const half* K, const half* V, half* O, int N) {
    __shared__ __align__(16) half k[16][D + 8], v[16][D + 8];
    const int lane = threadIdx.x % 32, first = blockIdx.x * 32 + threadIdx.x / 32 * 8;
    const size_t base = (size_t)blockIdx.y * N * D;
    unsigned q[D / 16][2];
    const half* from = Q + base + (size_t)min(first + lane / 4, N - 1) * D + lane % 4 * 2;
    for (int d = 0; d < D / 16; ++d) q[d][0] = word(from + d * 16), q[d][1] = word(from + d * 16 + 8);
    float o[D / 16][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {};
    for (int j0 = 0; j0 < N; j0 += 16) {
        __syncthreads();
        for (int i = threadIdx.x * 8; i < 16 * D; i += 128 * 8) {
            const bool there = j0 + i / D < N;
            const size_t at = base + (size_t)j0 * D + i;
            *reinterpret_cast<uint4*>(&k[i / D][i % D]) = there ? *reinterpret_cast<const uint4*>(K + at) : uint4{};
            *reinterpret_cast<uint4*>(&v[i / D][i % D]) = there ? *reinterpret_cast<const uint4*>(V + at) : uint4{};
        }
        __syncthreads();
        float s[4] = {};
        unsigned a[4];
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
            load_a<false>(a, &k[lane % 16][d * 16 + lane / 16 * 8]);
            mma(s, a, q[d][0], q[d][1]);
        }
        float shrink[2];
        for (int e = 0; e < 4; ++e) s[e] = j0 + lane / 4 + e / 2 * 8 < N ? s[e] * (1.44269504f * rsqrtf(D)) : -INFINITY;
        for (int c = 0; c < 2; ++c) {
            float larger = fmaxf(m[c], fmaxf(s[c], s[c + 2]));
            for (int step = 4; step < 32; step *= 2) larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, step));
            shrink[c] = exp2f(m[c] - larger);
            m[c] = larger;
            s[c] = exp2f(s[c] - larger), s[c + 2] = exp2f(s[c + 2] - larger);
            l[c] = l[c] * shrink[c] + s[c] + s[c + 2];
        }
        const unsigned p0 = turned(pair(s[0], s[1])), p1 = turned(pair(s[2], s[3]));
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
            for (int e = 0; e < 4; ++e) o[d][e] *= shrink[e % 2];
            load_a<true>(a, &v[lane % 8 + lane / 16 * 8][d * 16 + lane / 8 % 2 * 8]);
            mma(o[d], a, p0, p1);
        }
    }
    for (int c = 0; c < 2; ++c) {
        const int query = first + lane % 4 * 2 + c;
        for (int step = 4; step < 32; step *= 2) l[c] += __shfl_xor_sync(~0u, l[c], step);
        if (query >= N) continue;
        for (int d = 0; d < D / 16; ++d)
            for (int e = c; e < 4; e += 2)
                O[base + (size_t)query * D + d * 16 + lane / 4 + e / 2 * 8] = __float2half(o[d][e] / l[c]);
    }
}
template <int D>
void run(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    columns<D><<<dim3((N + 31) / 32, heads), 128, 0, stream>>>(Q, K, V, O, N);
}
KATA_EXPORT void flash_attn_mma_stages_split_q_acc_f32(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    if (D == 32) run<32>(Q, K, V, O, B * H, N, stream);
    if (D == 64) run<64>(Q, K, V, O, B * H, N, stream);
    if (D == 96) run<96>(Q, K, V, O, B * H, N, stream);
    if (D == 128) run<128>(Q, K, V, O, B * H, N, stream);
}
