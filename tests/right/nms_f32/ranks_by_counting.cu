// ranks by counting, one warp that keeps the removed bits in registers
#include "kata.cuh"
#include <cstdint>

constexpr int MAX_BOXES = 4096, WORDS = MAX_BOXES / 64;

// The rank of each box by counting the boxes that come before it; boxes go into that order.
__global__ void rank_boxes(const float* boxes, const float* scores, float4* sorted, int* order, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ float tile[256];
    const float mine = i < n ? scores[i] : 0.f;
    int rank = 0;
    for (int base = 0; base < n; base += 256) {
        __syncthreads();
        if (base + threadIdx.x < n) tile[threadIdx.x] = scores[base + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < 256 && base + j < n; ++j) rank += tile[j] > mine || (tile[j] == mine && base + j < i);
    }
    if (i < n) {
        order[rank] = i;
        sorted[rank] = reinterpret_cast<const float4*>(boxes)[i];
    }
}

// Bit j % 64 of word (i, j / 64): box j, after box i, overlaps it too much.
__global__ void overlaps(const float4* sorted, unsigned long long* mask, int n, int words, float threshold) {
    if (blockIdx.x < blockIdx.y) return;
    __shared__ float4 cols[64];
    const int j0 = blockIdx.x * 64, i = blockIdx.y * 64 + threadIdx.x;
    if (j0 + threadIdx.x < n) cols[threadIdx.x] = sorted[j0 + threadIdx.x];
    __syncthreads();
    if (i >= n) return;
    const float4 a = sorted[i];
    const float area_a = (a.z - a.x) * (a.w - a.y);
    unsigned long long bits = 0;
    for (int j = 0; j < 64 && j0 + j < n; ++j) {
        if (j0 + j <= i) continue;
        const float4 b = cols[j];
        const float w = fmaxf(0.f, fminf(a.z, b.z) - fmaxf(a.x, b.x));
        const float h = fmaxf(0.f, fminf(a.w, b.w) - fmaxf(a.y, b.y));
        const float both = w * h;
        const float either = area_a + (b.z - b.x) * (b.w - b.y) - both;
        if (both / either > threshold) bits |= 1ull << j;
    }
    mask[1ll * i * words + blockIdx.x] = bits;
}

// One warp goes through the boxes in order; lane l holds the removed bits of words l and l + 32.
__global__ void keep_boxes(
    const unsigned long long* mask, const int* order, int64_t* keep, int* count, int n, int words) {
    const int lane = threadIdx.x;
    unsigned long long gone[2] = {0, 0};
    int kept = 0;
    for (int b = 0; b < words; ++b) {
        unsigned long long here = __shfl_sync(~0u, b < 32 ? gone[0] : gone[1], b % 32);
        for (int j = 0; j < 64 && b * 64 + j < n; ++j) {
            if (here >> j & 1) continue;
            const int i = b * 64 + j;
            if (lane == 0) keep[kept] = order[i];
            ++kept;
            const unsigned long long* row = mask + 1ll * i * words;
            here |= row[b];
            if (lane >= b && lane < words) gone[0] |= row[lane];
            if (lane + 32 >= b && lane + 32 < words) gone[1] |= row[lane + 32];
        }
    }
    for (int i = kept + lane; i < n; i += 32) keep[i] = -1;
    if (lane == 0) *count = kept;
}

KATA_EXPORT void nms_f32(
    const float* boxes, const float* scores, int64_t* keep, int* count, int n, float iou_threshold,
    cudaStream_t stream) {
    if (n == 0) {
        cudaMemsetAsync(count, 0, sizeof(int), stream);
        return;
    }
    const int words = (n - 1) / 64 + 1;
    float4* sorted;
    unsigned long long* mask;
    int* order;
    cudaMallocAsync(&sorted, n * sizeof(float4), stream);
    cudaMallocAsync(&mask, size_t(n) * words * 8, stream);
    cudaMallocAsync(&order, n * sizeof(int), stream);
    rank_boxes<<<(n - 1) / 256 + 1, 256, 0, stream>>>(boxes, scores, sorted, order, n);
    overlaps<<<dim3(words, words), 64, 0, stream>>>(sorted, mask, n, words, iou_threshold);
    keep_boxes<<<1, 32, 0, stream>>>(mask, order, keep, count, n, words);
    cudaFreeAsync(sorted, stream);
    cudaFreeAsync(mask, stream);
    cudaFreeAsync(order, stream);
}
