// Bulk copies and the mbarriers that they complete on (sm_90).
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 128;

#define LAUNCHER(name)                                                            \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        name##_kernel<<<1, THREADS, 0, stream>>>(x, y, n);                        \
    }

__device__ __forceinline__ unsigned smem(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void initialise(uint64_t* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(bar)), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect(uint64_t* bar, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(bar)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void load(float* to, const float* from, unsigned bytes, uint64_t* bar) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem(to)),
        "l"(from), "r"(bytes), "r"(smem(bar))
        : "memory");
}
__device__ __forceinline__ void wait(uint64_t* bar, unsigned parity) {
    asm volatile(
        "{\n .reg .pred p;\nAGAIN_%=:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @!p bra AGAIN_%=;\n}" ::
            "r"(smem(bar)),
        "r"(parity)
        : "memory");
}
__device__ __forceinline__ void fence_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void store_unfenced(float* to, const float* from, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(smem(from)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ __forceinline__ void store(float* to, const float* from, unsigned bytes) {
    fence_proxy();
    store_unfenced(to, from, bytes);
}
__device__ __forceinline__ void wait_stores() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// A tile at a time, in by one bulk copy and out by another.
__global__ void bulk_kernel(const float* x, float* y, int n) {
    __shared__ alignas(128) float in[THREADS], out[THREADS];
    __shared__ alignas(8) uint64_t bar;
    const int tid = threadIdx.x;
    if (tid == 0) initialise(&bar, 1);
    __syncthreads();
    for (int k = 0; k < n / THREADS; ++k) {
        if (tid == 0) {
            expect(&bar, sizeof in);
            load(in, x + k * THREADS, sizeof in, &bar);
        }
        wait(&bar, k % 2);
        out[tid] = in[THREADS - 1 - tid];
        __syncthreads();
        if (tid == 0) {
            store(y + k * THREADS, out, sizeof out);
            wait_stores();
        }
        __syncthreads();
    }
}
LAUNCHER(bulk)

// Nobody tells the barrier of the bytes: the phase ends before they are there.
__global__ void bulk_no_expect_kernel(const float* x, float* y, int n) {
    __shared__ alignas(128) float in[THREADS];
    __shared__ alignas(8) uint64_t bar;
    const int tid = threadIdx.x;
    if (tid == 0) initialise(&bar, 1);
    __syncthreads();
    if (tid == 0) {
        asm volatile("{\n .reg .b64 t;\n mbarrier.arrive.shared::cta.b64 t, [%0];\n}" ::"r"(smem(&bar)) : "memory");
        load(in, x, sizeof in, &bar);
    }
    wait(&bar, 0);
    y[tid] = in[tid];  // bulk_no_expect
}
LAUNCHER(bulk_no_expect)

__global__ void bulk_no_wait_kernel(const float* x, float* y, int n) {
    __shared__ alignas(128) float in[THREADS];
    __shared__ alignas(8) uint64_t bar;
    const int tid = threadIdx.x;
    if (tid == 0) {
        initialise(&bar, 1);
        expect(&bar, sizeof in);
        load(in, x, sizeof in, &bar);
    }
    __syncthreads();
    y[tid] = in[tid];  // bulk_no_wait
}
LAUNCHER(bulk_no_wait)

// The parity of the phase before the first: the wait ends at once.
__global__ void bulk_parity_kernel(const float* x, float* y, int n) {
    __shared__ alignas(128) float in[THREADS];
    __shared__ alignas(8) uint64_t bar;
    const int tid = threadIdx.x;
    if (tid == 0) {
        initialise(&bar, 1);
        expect(&bar, sizeof in);
        load(in, x, sizeof in, &bar);
    }
    __syncthreads();
    wait(&bar, 1);
    y[tid] = in[tid];  // bulk_parity
}
LAUNCHER(bulk_parity)

// Half of the bytes never come.
__global__ void bulk_short_kernel(const float* x, float* y, int n) {
    __shared__ alignas(128) float in[THREADS];
    __shared__ alignas(8) uint64_t bar;
    if (threadIdx.x == 0) {
        initialise(&bar, 1);
        expect(&bar, sizeof in);
        load(in, x, sizeof in / 2, &bar);
    }
    __syncthreads();
    wait(&bar, 0);
    y[threadIdx.x] = in[threadIdx.x];
}
LAUNCHER(bulk_short)

__global__ void bulk_store_exits_kernel(const float* x, float* y, int n) {
    __shared__ alignas(128) float out[THREADS];
    out[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) store(y, out, sizeof out);
}
LAUNCHER(bulk_store_exits)

__global__ void bulk_misaligned_kernel(const float* x, float* y, int n) {
    __shared__ alignas(128) float in[THREADS];
    __shared__ alignas(8) uint64_t bar;
    if (threadIdx.x == 0) {
        initialise(&bar, 1);
        load(in, x + 1, sizeof in, &bar);
    }
    y[threadIdx.x] = x[threadIdx.x];
}
LAUNCHER(bulk_misaligned)

__global__ void one_cluster_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    tile[threadIdx.x] = x[threadIdx.x];
    asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
    unsigned rank, leader;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(leader));
    y[threadIdx.x] = tile[THREADS - 1 - threadIdx.x] + float(rank) + float(leader);
}
LAUNCHER(one_cluster)

__global__ void tensor_map_kernel(const float* x, float* y, int n) {
    __shared__ alignas(128) float in[THREADS];
    __shared__ alignas(8) uint64_t bar;
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::
            "r"(smem(in)),
        "l"(x), "r"(0), "r"(smem(&bar))
        : "memory");  // tensor_map
    y[threadIdx.x] = in[threadIdx.x];
}
LAUNCHER(tensor_map)

// Between what threads wrote and a bulk copy that reads it, a proxy fence must stand: the barrier alone is not enough.
template <bool WRITERS_FENCE, bool FENCE_FIRST>
__device__ void store_tile(const float* x, float* y) {
    __shared__ alignas(128) float out[THREADS];
    const int tid = threadIdx.x;
    for (int k = 0; k < 2; ++k) {
        if (FENCE_FIRST) fence_proxy();
        out[tid] = x[k * THREADS + THREADS - 1 - tid];
        if (WRITERS_FENCE) fence_proxy();
        __syncthreads();
        if (tid == 0) {
            store_unfenced(y + k * THREADS, out, sizeof out);
            wait_stores();
        }
        __syncthreads();
    }
}
__global__ void no_fence_kernel(const float* x, float* y, int n) {
    store_tile<false, false>(x, y);
}
LAUNCHER(no_fence)
__global__ void fence_too_early_kernel(const float* x, float* y, int n) {
    store_tile<false, true>(x, y);
}
LAUNCHER(fence_too_early)
__global__ void writers_fence_kernel(const float* x, float* y, int n) {
    store_tile<true, false>(x, y);
}
LAUNCHER(writers_fence)

// Consumers fence and arrive at an mbarrier; the thread that waits for it copies.
__global__ void fence_and_arrive_kernel(const float* x, float* y, int n) {
    __shared__ alignas(128) float out[THREADS];
    __shared__ alignas(8) uint64_t bar;
    const int tid = threadIdx.x;
    if (tid == 0) initialise(&bar, THREADS);
    __syncthreads();
    out[tid] = x[THREADS - 1 - tid];
    fence_proxy();
    asm volatile("{\n .reg .b64 t;\n mbarrier.arrive.shared::cta.b64 t, [%0];\n}" ::"r"(smem(&bar)) : "memory");
    if (tid == THREADS - 1) {
        wait(&bar, 0);
        store_unfenced(y, out, sizeof out);
        wait_stores();
    }
}
LAUNCHER(fence_and_arrive)

// In and out by bulk copies alone: both are of the async proxy.
__global__ void in_and_out_kernel(const float* x, float* y, int n) {
    __shared__ alignas(128) float tile[THREADS];
    __shared__ alignas(8) uint64_t bar;
    if (threadIdx.x != 0) return;
    initialise(&bar, 1);
    expect(&bar, sizeof tile);
    load(tile, x, sizeof tile, &bar);
    wait(&bar, 0);
    store_unfenced(y, tile, sizeof tile);
    wait_stores();
}
LAUNCHER(in_and_out)
