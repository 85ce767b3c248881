// each group of D / 8 lanes has a key and an online softmax of its own
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int WARPS = 4, THREADS = WARPS * 32;

union Pack {
    uint4 raw;
    half2 h[4];
};

// Block (split, head): keys of its part. D / 8 lanes hold one key; each such group has its own online softmax.
template <int D>
__global__ void __launch_bounds__(THREADS)
    parts(const half* q, const half* K, const half* V, const int* lengths, float* scratch, int H, int N, float scale) {
    constexpr int LANES = D / 8, GROUPS = THREADS / LANES;
    __shared__ float ms[GROUPS], ls[GROUPS], os[GROUPS][D];
    const int head = blockIdx.y, split = blockIdx.x, splits = gridDim.x;
    const int length = lengths[head / H];
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const int per = (length + splits - 1) / splits;
    const int begin = split * per, end = min(length, begin + per);
    Pack qp;
    qp.raw = reinterpret_cast<const uint4*>(q + 1ll * head * D)[lane];
    float2 qf[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
        qf[u] = __half22float2(qp.h[u]);
        qf[u].x *= scale, qf[u].y *= scale;
    }
    const uint4* keys = reinterpret_cast<const uint4*>(K + 1ll * head * N * D) + lane;
    const uint4* vals = reinterpret_cast<const uint4*>(V + 1ll * head * N * D) + lane;
    float m = -INFINITY, l = 0, o[8] = {};
    constexpr int UNROLL = 4;
    for (int base = begin; base < end; base += GROUPS * UNROLL) {
        Pack k[UNROLL], v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int key = base + u * GROUPS + group;
            k[u].raw = v[u].raw = make_uint4(0, 0, 0, 0);
            if (key < end) {
                k[u].raw = keys[1ll * key * LANES];
                v[u].raw = vals[1ll * key * LANES];
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            float s = 0;
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                const float2 f = __half22float2(k[u].h[w]);
                s += f.x * qf[w].x + f.y * qf[w].y;
            }
            for (int d = LANES / 2; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
            if (base + u * GROUPS + group >= end) continue;
            const float top = fmaxf(m, s), old = expf(m - top), p = expf(s - top);
            m = top;
            l = l * old + p;
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                const float2 f = __half22float2(v[u].h[w]);
                o[2 * w] = o[2 * w] * old + p * f.x;
                o[2 * w + 1] = o[2 * w + 1] * old + p * f.y;
            }
        }
    }
    if (lane == 0) ms[group] = m, ls[group] = l;
    for (int u = 0; u < 8; ++u) os[group][lane * 8 + u] = o[u];
    __syncthreads();
    float* to = scratch + (1ll * head * splits + split) * (D + 2);
    for (int d = threadIdx.x; d < D; d += THREADS) {
        float top = -INFINITY, sum = 0, acc = 0;
        for (int g = 0; g < GROUPS; ++g) top = fmaxf(top, ms[g]);
        if (top > -INFINITY) {
            for (int g = 0; g < GROUPS; ++g) {
                const float w = expf(ms[g] - top);
                sum += w * ls[g];
                acc += w * os[g][d];
            }
        }
        to[d] = acc;
        if (d == 0) to[D] = top, to[D + 1] = sum;
    }
}

template <int D>
__global__ void merge(const float* scratch, half* O, int splits) {
    const float* from = scratch + 1ll * blockIdx.x * splits * (D + 2);
    float top = -INFINITY, sum = 0, acc = 0;
    for (int s = 0; s < splits; ++s) top = fmaxf(top, from[s * (D + 2) + D]);
    if (top > -INFINITY) {
        for (int s = 0; s < splits; ++s) {
            const float w = expf(from[s * (D + 2) + D] - top);
            sum += w * from[s * (D + 2) + D + 1];
            acc += w * from[s * (D + 2) + threadIdx.x];
        }
    }
    O[1ll * blockIdx.x * D + threadIdx.x] = __float2half(sum > 0 ? acc / sum : 0.f);
}

template <int D>
void run(
    const half* q, const half* K, const half* V, const int* lengths, half* O, int B, int H, int N,
    cudaStream_t stream) {
    int device, sms;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    const int heads = B * H;
    int splits = (8 * sms - 1) / heads + 1;
    const int most = (N - 1) / 64 + 1;
    if (splits > most) splits = most;
    float* scratch;
    cudaMallocAsync(&scratch, sizeof(float) * heads * splits * (D + 2), stream);
    parts<D><<<dim3(splits, heads), THREADS, 0, stream>>>(q, K, V, lengths, scratch, H, N, 1.f / sqrtf(D));
    merge<D><<<heads, D, 0, stream>>>(scratch, O, splits);
    cudaFreeAsync(scratch, stream);
}

KATA_EXPORT void decode_attention_kv_cache_f16(
    const half* q, const half* K, const half* V, const int* lengths, half* O, int B, int H, int N, int D,
    cudaStream_t stream) {
    if (B == 0) return;
    if (D == 64)
        run<64>(q, K, V, lengths, O, B, H, N, stream);
    else
        run<128>(q, K, V, lengths, O, B, H, N, stream);
}
