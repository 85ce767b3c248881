// one kernel counts, one has a block per row that ends at alignment by hand, one sums the losses
#include "kata.cuh"
#include <cstdint>
#include <cuda_bf16.h>

constexpr int THREADS = 512, WARPS = THREADS / 32, IGNORED = -100;

union Pack {
    uint4 raw;
    __nv_bfloat16 e[8];
};

__device__ float warp_sum(float v) {
    for (int m = 16; m; m >>= 1) v += __shfl_xor_sync(~0u, v, m);
    return v;
}

__device__ float block_sum(float v, float* part) {
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < WARPS ? part[threadIdx.x % 32] : 0.f;
    return warp_sum(v);
}

__global__ void count_rows(const int64_t* target, int* counted, int rows) {
    __shared__ int all;
    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    int c = 0;
    for (int r = threadIdx.x; r < rows; r += THREADS) c += target[r] != IGNORED;
    atomicAdd(&all, c);
    __syncthreads();
    if (threadIdx.x == 0) *counted = all;
}

// Maximum, sum of exponentials and sum so far.
struct Stats {
    float m, e, s;
    __device__ void take(float v) {
        s += v;
        if (v > m) {
            e = e * expf(m - v) + 1.f;
            m = v;
        } else if (m > -INFINITY || v != v) {
            e += expf(v - m);
        }
    }
};

__global__ void __launch_bounds__(THREADS)
    rows_kernel(__nv_bfloat16* x, const int64_t* target, const int* counted, float* losses, int V, float smoothing) {
    __shared__ float part[WARPS], maxima[WARPS];
    const int64_t row = blockIdx.x, t = target[row];
    __nv_bfloat16* in = x + row * V;
    // head elements up to the first 16-byte boundary, then vectors, then the tail
    const int head_all = static_cast<int>((16 - reinterpret_cast<uintptr_t>(in) % 16) % 16 / 2);
    const int head = head_all < V ? head_all : V;
    const int vectors = (V - head) / 8, tail = head + vectors * 8;
    uint4* middle = reinterpret_cast<uint4*>(in + head);
    if (t == IGNORED) {
        const __nv_bfloat16 zero = __float2bfloat16(0.f);
        if (threadIdx.x < head) in[threadIdx.x] = zero;
        for (int i = threadIdx.x; i < vectors; i += THREADS) middle[i] = make_uint4(0, 0, 0, 0);
        if (tail + threadIdx.x < V) in[tail + threadIdx.x] = zero;
        if (threadIdx.x == 0) losses[row] = 0.f;
        return;
    }
    Stats st = {-INFINITY, 0.f, 0.f};
    if (threadIdx.x < head) st.take(__bfloat162float(in[threadIdx.x]));
    for (int i = threadIdx.x; i < vectors; i += THREADS) {
        Pack p;
        p.raw = middle[i];
#pragma unroll
        for (int u = 0; u < 8; ++u) st.take(__bfloat162float(p.e[u]));
    }
    if (tail + threadIdx.x < V) st.take(__bfloat162float(in[tail + threadIdx.x]));
    float m = st.m;
    for (int k = 16; k; k >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, k));
    if (threadIdx.x % 32 == 0) maxima[threadIdx.x / 32] = m;
    const float at_target = __bfloat162float(in[t]);
    __syncthreads();
    m = maxima[0];
    for (int w = 1; w < WARPS; ++w) m = fmaxf(m, maxima[w]);
    const float e = block_sum(st.m > -INFINITY ? st.e * expf(st.m - m) : st.e, part);
    const float s = block_sum(st.s, part);
    const float lse = m + logf(e);
    const float scale = 1.f / *counted, spread = smoothing / V;
    if (threadIdx.x == 0) losses[row] = (1.f - smoothing) * (lse - at_target) + smoothing * (lse - s / V);
    auto gradient = [&](__nv_bfloat16 v, int64_t c) {
        const float hot = c == t ? 1.f - smoothing : 0.f;
        return __float2bfloat16((expf(__bfloat162float(v) - lse) - hot - spread) * scale);
    };
    if (threadIdx.x < head) in[threadIdx.x] = gradient(in[threadIdx.x], threadIdx.x);
    for (int i = threadIdx.x; i < vectors; i += THREADS) {
        Pack p;
        p.raw = middle[i];
#pragma unroll
        for (int u = 0; u < 8; ++u) p.e[u] = gradient(p.e[u], head + 8ll * i + u);
        middle[i] = p.raw;
    }
    if (tail + threadIdx.x < V) in[tail + threadIdx.x] = gradient(in[tail + threadIdx.x], tail + threadIdx.x);
}

__global__ void mean_of(const float* losses, const int* counted, float* mean_loss, int rows) {
    __shared__ float part[WARPS];
    float v = 0;
    for (int r = threadIdx.x; r < rows; r += THREADS) v += losses[r];
    v = block_sum(v, part);
    if (threadIdx.x == 0) *mean_loss = *counted ? v / *counted : 0.f;
}

KATA_EXPORT void ce_smooth_ignore_bf16(
    __nv_bfloat16* x, const int64_t* target, float* mean_loss, int rows, int V, float smoothing, cudaStream_t stream) {
    float* losses;
    cudaMallocAsync(&losses, (rows + 1ll) * sizeof(float), stream);
    int* counted = reinterpret_cast<int*>(losses + rows);
    count_rows<<<1, THREADS, 0, stream>>>(target, counted, rows);
    rows_kernel<<<rows, THREADS, 0, stream>>>(x, target, counted, losses, V, smoothing);
    mean_of<<<1, THREADS, 0, stream>>>(losses, counted, mean_loss, rows);
    cudaFreeAsync(losses, stream);
}
