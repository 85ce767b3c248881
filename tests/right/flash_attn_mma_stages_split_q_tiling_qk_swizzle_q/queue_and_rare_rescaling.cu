// persistent blocks take tiles from a counter; sums are rescaled only where a maximum grows by more than 2^8
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cuda/atomic>
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
// Two 8 x 8 pieces of 16 keys, transposed: what B of the product with the weights takes.
__device__ void load_values(unsigned (&b)[2], const half* row) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(b[0]), "=r"(b[1])
                 : "r"(at)
                 : "memory");
}
__device__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 16 queries of a warp: sums of O, each row's maximum and its lane's part of the sum of weights.
template <int D>
struct Rows {
    unsigned q[D / 16][4];
    float o[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {0.0f, 0.0f};

    __device__ Rows(const half* Q, int first, int N) {
        const int lane = threadIdx.x % 32;
        for (int i = 0; i < 4; ++i) {
            const half* row = Q + (size_t)min(first + lane / 4 + i % 2 * 8, N - 1) * D + lane % 4 * 2 + i / 2 * 8;
#pragma unroll
            for (int d = 0; d < D / 16; ++d) q[d][i] = word(row + d * 16);
        }
    }
    // 16 keys and their values in shared memory, rows `stride` apart; `left` of them count.
    __device__ void add(const half* k, const half* v, int stride, int left) {
        const int lane = threadIdx.x % 32;
        float s[2][4] = {};
#pragma unroll
        for (int d = 0; d < D / 16; ++d)
            for (int n = 0; n < 2; ++n) {
                const half* at = k + (n * 8 + lane / 4) * stride + d * 16 + lane % 4 * 2;
                mma(s[n], q[d], word(at), word(at + 8));
            }
        const float scale = 1.44269504f * rsqrtf(D);
        for (int n = 0; n < 2; ++n)
            for (int e = 0; e < 4; ++e) s[n][e] = n * 8 + lane % 4 * 2 + e % 2 < left ? s[n][e] * scale : -INFINITY;
        for (int r = 0; r < 2; ++r) {
            float larger = fmaxf(fmaxf(s[0][2 * r], s[0][2 * r + 1]), fmaxf(s[1][2 * r], s[1][2 * r + 1]));
            larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 1));
            larger = fmaxf(m[r], fmaxf(larger, __shfl_xor_sync(~0u, larger, 2)));
            if (__any_sync(~0u, larger > m[r] + 8.0f)) {
                const float shrink = power_of_2(m[r] - larger);
                m[r] = larger;
                l[r] *= shrink;
#pragma unroll
                for (int d = 0; d < D / 8; ++d) o[d][2 * r] *= shrink, o[d][2 * r + 1] *= shrink;
            }
            for (int n = 0; n < 2; ++n)
                for (int e = 2 * r; e < 2 * r + 2; ++e) l[r] += s[n][e] = power_of_2(s[n][e] - m[r]);
        }
        const unsigned p[4] = {
            pair(s[0][0], s[0][1]), pair(s[0][2], s[0][3]), pair(s[1][0], s[1][1]), pair(s[1][2], s[1][3])};
#pragma unroll
        for (int d = 0; d < D / 8; ++d) {
            unsigned b[2];
            load_values(b, v + lane % 16 * stride + d * 8);
            mma(o[d], p, b[0], b[1]);
        }
    }
    __device__ void store(half* O, int first, int N) {
        const int lane = threadIdx.x % 32;
        for (int r = 0; r < 2; ++r) {
            const int row = first + lane / 4 + r * 8;
            float sum = l[r] + __shfl_xor_sync(~0u, l[r], 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            if (row >= N) continue;
#pragma unroll
            for (int d = 0; d < D / 8; ++d)
                *reinterpret_cast<half2*>(O + (size_t)row * D + d * 8 + lane % 4 * 2) =
                    __floats2half2_rn(o[d][2 * r] / sum, o[d][2 * r + 1] / sum);
        }
    }
};

// Two warps have 16 queries each of the tile that their block took.
template <int D>
__global__ void __launch_bounds__(64)
    tiles(const half* Q, const half* K, const half* V, half* O, unsigned* next, int count, int tiles_q, int N) {
    __shared__ __align__(16) half k[16][D + 8], v[16][D + 8];
    __shared__ unsigned taken;
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) {
            cuda::atomic_ref<unsigned, cuda::thread_scope_device> queue(*next);
            taken = queue.fetch_add(1, cuda::memory_order_relaxed);
        }
        __syncthreads();
        const int tile = taken;
        if (tile >= count) return;
        const int first = tile % tiles_q * 32 + threadIdx.x / 32 * 16;
        const size_t base = (size_t)(tile / tiles_q) * N * D;
        Rows<D> rows(Q + base, first, N);
        for (int j0 = 0; j0 < N; j0 += 16) {
            __syncthreads();
            for (int i = threadIdx.x * 8; i < 16 * D; i += 64 * 8) {
                const bool there = j0 + i / D < N;
                const size_t at = base + (size_t)j0 * D + i;
                *reinterpret_cast<uint4*>(&k[i / D][i % D]) =
                    there ? __ldg(reinterpret_cast<const uint4*>(K + at)) : uint4{};
                *reinterpret_cast<uint4*>(&v[i / D][i % D]) =
                    there ? __ldg(reinterpret_cast<const uint4*>(V + at)) : uint4{};
            }
            __syncthreads();
            rows.add(&k[0][0], &v[0][0], D + 8, N - j0);
        }
        rows.store(O + base, first, N);
    }
}
template <int D>
void run(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    int device, processors, resident;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, tiles<D>, 64, 0);
    unsigned* next;
    cudaMallocAsync(&next, sizeof(unsigned), stream);
    cudaMemsetAsync(next, 0, sizeof(unsigned), stream);
    const int tiles_q = (N + 31) / 32, count = tiles_q * heads;
    tiles<D><<<min(count, processors * resident), 64, 0, stream>>>(Q, K, V, O, next, count, tiles_q, N);
    cudaFreeAsync(next, stream);
}
KATA_EXPORT void flash_attn_mma_stages_split_q_tiling_qk_swizzle_q(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    if (D == 32) run<32>(Q, K, V, O, B * H, N, stream);
    if (D == 64) run<64>(Q, K, V, O, B * H, N, stream);
    if (D == 96) run<96>(Q, K, V, O, B * H, N, stream);
    if (D == 128) run<128>(Q, K, V, O, B * H, N, stream);
    if (D == 256) run<256>(Q, K, V, O, B * H, N, stream);
}
