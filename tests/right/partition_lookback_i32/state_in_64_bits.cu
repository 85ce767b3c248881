// counts and flags in 64 bits, read by atomicAdd of 0, a window of 32 predecessors
#include "kata.cuh"

// One kernel. A ticket orders the blocks, and each looks back over the counts of those before it.
constexpr int THREADS = 256, ITEMS = 8, TILE = THREADS * ITEMS;
constexpr unsigned long long COUNT = 1ull << 62, PREFIX = 2ull << 62, VALUE = (1ull << 62) - 1;

__global__ void partition_tiles(const int* x, int* y, int* count, int n, unsigned long long* state, unsigned* ticket) {
    __shared__ int tile_shared, before_shared, warp_counts[THREADS / 32];
    if (threadIdx.x == 0) tile_shared = atomicAdd(ticket, 1u);
    __syncthreads();
    const int tile = tile_shared;
    const long long begin = 1ll * tile * TILE + threadIdx.x * ITEMS;
    int v[ITEMS], positive = 0;
    if (begin + ITEMS <= n) {
        const int4* from = reinterpret_cast<const int4*>(x + begin);
#pragma unroll
        for (int u = 0; u < ITEMS / 4; ++u) {
            const int4 q = from[u];
            v[4 * u] = q.x, v[4 * u + 1] = q.y, v[4 * u + 2] = q.z, v[4 * u + 3] = q.w;
        }
    } else {
#pragma unroll
        for (int u = 0; u < ITEMS; ++u) v[u] = begin + u < n ? x[begin + u] : 0;
    }
#pragma unroll
    for (int u = 0; u < ITEMS; ++u) positive += v[u] > 0;
    int sum = positive;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) warp_counts[warp] = sum;
    __syncthreads();
    int before = sum - positive, total = 0;
    for (int w = 0; w < THREADS / 32; ++w) {
        if (w < warp) before += warp_counts[w];
        total += warp_counts[w];
    }
    if (warp == 0) {
        if (lane == 0) {
            __threadfence();
            atomicExch(&state[tile], (tile == 0 ? PREFIX : COUNT) | static_cast<unsigned long long>(total));
        }
        long long prefix = 0;
        for (int last = tile - 1; last >= 0; last -= 32) {
            const int t = last - lane;
            unsigned long long s = PREFIX;
            if (t >= 0) {
                do s = atomicAdd(&state[t], 0ull);
                while ((s & ~VALUE) == 0);
            }
            const unsigned done = __ballot_sync(~0u, (s & PREFIX) != 0);
            const int stop = done ? __ffs(done) - 1 : 31;
            int c = lane <= stop ? static_cast<int>(s & VALUE) : 0;
            for (int m = 16; m; m >>= 1) c += __shfl_xor_sync(~0u, c, m);
            prefix += c;
            if (done) break;
        }
        if (lane == 0) {
            before_shared = static_cast<int>(prefix);
            if (tile > 0) atomicExch(&state[tile], PREFIX | static_cast<unsigned long long>(prefix + total));
            if (1ll * (tile + 1) * TILE >= n) *count = static_cast<int>(prefix + total);
        }
    }
    __syncthreads();
    int rank = before_shared + before;
#pragma unroll
    for (int u = 0; u < ITEMS; ++u) {
        if (begin + u >= n) break;
        if (v[u] > 0) {
            y[rank++] = v[u];
        } else {
            y[n - 1 - (begin + u - rank)] = v[u];
        }
    }
}

KATA_EXPORT void partition_lookback_i32(const int* x, int* y, int* count, int n, cudaStream_t stream) {
    if (n == 0) {
        cudaMemsetAsync(count, 0, sizeof(int), stream);
        return;
    }
    const int tiles = (n - 1) / TILE + 1;
    unsigned long long* state;
    const size_t bytes = (tiles + 1) * sizeof(*state);
    cudaMallocAsync(&state, bytes, stream);
    cudaMemsetAsync(state, 0, bytes, stream);
    partition_tiles<<<tiles, THREADS, 0, stream>>>(x, y, count, n, state + 1, reinterpret_cast<unsigned*>(state));
    cudaFreeAsync(state, stream);
}
