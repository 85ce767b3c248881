// only elements that enter the list are inserted, one ballot per 32 columns
#include "kata.cuh"
#include <cmath>

constexpr int THREADS = 128;

__device__ bool before(float a, int i, float b, int j) {
    // columns of nothing are INT_MAX and stand after real -inf
    return a > b || (a == b && i < j);
}

// One warp per row. Lane l holds the place l of the list so far.
__global__ void topk_rows(const float* x, float* values, int* idx, int rows, int cols, int k) {
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const float* in = x + 1ll * row * cols;
    float best = -INFINITY;
    int where = 0x7fffffff;
    for (int base = 0; base < cols; base += 128) {
        float v[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            const int c = base + u * 32 + lane;
            v[u] = c < cols ? in[c] : -INFINITY;
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            const int c = base + u * 32 + lane;
            float last = __shfl_sync(~0u, best, k - 1);
            int last_at = __shfl_sync(~0u, where, k - 1);
            unsigned who = __ballot_sync(~0u, c < cols && before(v[u], c, last, last_at));
            while (who) {
                const int from = __ffs(who) - 1;
                who &= who - 1;
                const float nv = __shfl_sync(~0u, v[u], from);
                const int nc = base + u * 32 + from;
                const bool stays = before(best, where, nv, nc);
                const float left = __shfl_up_sync(~0u, best, 1);
                const int left_at = __shfl_up_sync(~0u, where, 1);
                const int place = __popc(__ballot_sync(~0u, stays));
                if (lane == place) {
                    best = nv;
                    where = nc;
                } else if (lane > place) {
                    best = left;
                    where = left_at;
                }
            }
        }
    }
    if (lane < k) {
        values[1ll * row * k + lane] = best;
        idx[1ll * row * k + lane] = where == 0x7fffffff ? -1 : where;
    }
}

KATA_EXPORT void topk_warp_f32(
    const float* x, float* values, int* idx, int rows, int cols, int k, cudaStream_t stream) {
    const int per = THREADS / 32;
    topk_rows<<<(rows - 1) / per + 1, THREADS, 0, stream>>>(x, values, idx, rows, cols, k);
}
