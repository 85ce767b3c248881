// keys split over the grid; the last block of a tile, found by cuda::atomic_ref, joins the parts in order
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
            const float shrink = exp2f(m[r] - larger);
            m[r] = larger;
            l[r] *= shrink;
            for (int n = 0; n < 2; ++n)
                for (int e = 2 * r; e < 2 * r + 2; ++e) l[r] += s[n][e] = exp2f(s[n][e] - larger);
#pragma unroll
            for (int d = 0; d < D / 8; ++d) o[d][2 * r] *= shrink, o[d][2 * r + 1] *= shrink;
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

constexpr int PART = 48;  // keys that a block has

// A warp a block: 16 queries, PART keys, 16 at a time. parts [heads][tiles][splits][16][D + 2]: O, maximum, sum.
template <int D>
__global__ void __launch_bounds__(32)
    tiles(const half* Q, const half* K, const half* V, half* O, float* parts, int* arrived, int N) {
    __shared__ __align__(16) half k[16][D + 8], v[16][D + 8];
    __shared__ int before;
    const int lane = threadIdx.x, first = blockIdx.x * 16, splits = gridDim.z;
    const size_t base = (size_t)blockIdx.y * N * D, tile = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
    Rows<D> rows(Q + base, first, N);
    const int end = min(N, (int)(blockIdx.z + 1) * PART);
    for (int j0 = blockIdx.z * PART; j0 < end; j0 += 16) {
        __syncwarp();
        for (int i = lane * 8; i < 16 * D; i += 32 * 8) {
            const bool there = j0 + i / D < end;
            const size_t at = base + (size_t)j0 * D + i;
            *reinterpret_cast<uint4*>(&k[i / D][i % D]) = there ? *reinterpret_cast<const uint4*>(K + at) : uint4{};
            *reinterpret_cast<uint4*>(&v[i / D][i % D]) = there ? *reinterpret_cast<const uint4*>(V + at) : uint4{};
        }
        __syncwarp();
        rows.add(&k[0][0], &v[0][0], D + 8, end - j0);
    }
    float* own = parts + (tile * splits + blockIdx.z) * 16 * (D + 2);
    for (int r = 0; r < 2; ++r) {
        float* to = own + (lane / 4 + r * 8) * (D + 2);
        float sum = rows.l[r] + __shfl_xor_sync(~0u, rows.l[r], 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        for (int d = 0; d < D / 8; ++d)
            for (int e = 0; e < 2; ++e) to[d * 8 + lane % 4 * 2 + e] = rows.o[d][2 * r + e];
        if (lane % 4 == 0) to[D] = rows.m[r], to[D + 1] = sum;
    }
    __syncwarp();
    if (lane == 0) {
        cuda::atomic_ref<int, cuda::thread_scope_device> count(arrived[tile]);
        before = count.fetch_add(1, cuda::memory_order_acq_rel);
    }
    __syncwarp();
    if (before != splits - 1) return;
    for (int i = lane; i < 16 * D; i += 32) {
        const int row = i / D, col = i % D;
        const float* from = parts + tile * splits * 16 * (D + 2) + row * (D + 2);
        float larger = -INFINITY, sum = 0, total = 0;
        for (int part = 0; part < splits; ++part) larger = fmaxf(larger, from[part * 16 * (D + 2) + D]);
        for (int part = 0; part < splits; ++part) {
            const float* one = from + part * 16 * (D + 2);
            const float share = exp2f(one[D] - larger);
            sum += share * one[D + 1];
            total += share * one[col];
        }
        if (first + row < N) O[base + (size_t)(first + row) * D + col] = __float2half(total / sum);
    }
}
template <int D>
void run(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    const int tiles_q = (N + 15) / 16, splits = (N + PART - 1) / PART;
    float* parts;
    int* arrived;
    cudaMallocAsync(&parts, (size_t)heads * tiles_q * splits * 16 * (D + 2) * sizeof(float), stream);
    cudaMallocAsync(&arrived, (size_t)heads * tiles_q * sizeof(int), stream);
    cudaMemsetAsync(arrived, 0, (size_t)heads * tiles_q * sizeof(int), stream);
    tiles<D><<<dim3(tiles_q, heads, splits), 32, 0, stream>>>(Q, K, V, O, parts, arrived, N);
    cudaFreeAsync(parts, stream);
    cudaFreeAsync(arrived, stream);
}
KATA_EXPORT void flash_attn_mma_stages_split_q_shared_qkv_swizzle_qkv(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    if (D == 32) run<32>(Q, K, V, O, B * H, N, stream);
    if (D == 64) run<64>(Q, K, V, O, B * H, N, stream);
    if (D == 96) run<96>(Q, K, V, O, B * H, N, stream);
    if (D == 128) run<128>(Q, K, V, O, B * H, N, stream);
}
