// The forms of mbarrier instructions: each kernel hands x over in reverse through shared memory, phase by phase.
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 64;

#define LAUNCHER(name)                                                            \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        name##_kernel<<<1, THREADS, 0, stream>>>(x, y, n);                        \
    }

__device__ __forceinline__ unsigned smem(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void initialise(uint64_t* bar, int count) {
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem(bar)), "r"(count) : "memory");
    __syncthreads();
}
__device__ __forceinline__ uint64_t arrive(uint64_t* bar) {
    uint64_t state;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(smem(bar)) : "memory");
    return state;
}
__device__ __forceinline__ bool test(uint64_t* bar, uint64_t state) {
    int over;
    asm volatile("{\n .reg .pred p;\n mbarrier.test_wait.shared.b64 p, [%1], %2;\n selp.s32 %0, 1, 0, p;\n}"
                 : "=r"(over)
                 : "r"(smem(bar)), "l"(state)
                 : "memory");
    return over;
}
__device__ __forceinline__ void wait_parity(uint64_t* bar, int parity) {
    asm volatile(
        "{\n .reg .pred p;\nAGAIN_%=:\n mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], %1, 1000;\n"
        " @!p bra AGAIN_%=;\n}" ::"r"(smem(bar)),
        "r"(parity)
        : "memory");
}

__global__ void states_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    __shared__ uint64_t bar;
    const int tid = threadIdx.x;
    initialise(&bar, THREADS);
    for (int k = 0; k < 3; ++k) {
        tile[tid] = x[k * THREADS + tid];
        uint64_t state = arrive(&bar);
        while (!test(&bar, state)) {
        }
        y[k * THREADS + tid] = tile[THREADS - 1 - tid];
        state = arrive(&bar);
        while (!test(&bar, state)) {
        }
    }
}
LAUNCHER(states)

// Every other thread arrives for two; the last to come is told apart by what is still pending.
__global__ void counts_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    __shared__ uint64_t bar;
    const int tid = threadIdx.x;
    initialise(&bar, THREADS + 1);
    tile[tid] = x[tid];
    __syncwarp();
    if (tid % 2 == 0) {
        uint64_t state;
        unsigned pending;
        asm volatile("mbarrier.arrive.noComplete.release.cta.shared.b64 %0, [%1], 2;"
                     : "=l"(state)
                     : "r"(smem(&bar))
                     : "memory");
        asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(pending) : "l"(state));
        y[2 * THREADS + tid] = pending >= 3 && pending <= THREADS + 1 && pending % 2 == 1;
    }
    __syncthreads();
    if (tid == 0) arrive(&bar);
    wait_parity(&bar, 0);
    y[tid] = tile[THREADS - 1 - tid];
}
LAUNCHER(counts)

// The upper warp takes leave: the second phase expects the lower one alone.
__global__ void drops_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    __shared__ uint64_t bar;
    const int tid = threadIdx.x;
    initialise(&bar, THREADS);
    tile[tid] = x[tid];
    if (tid >= 32) {
        uint64_t state;
        asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(state) : "r"(smem(&bar)) : "memory");
        return;
    }
    arrive(&bar);
    wait_parity(&bar, 0);
    const float low = tile[THREADS - 1 - tid], high = tile[31 - tid];
    arrive(&bar);
    wait_parity(&bar, 1);
    y[tid] = low;
    y[tid + 32] = high;
}
LAUNCHER(drops)

// The second half of the tile is neither announced nor copied.
__device__ __forceinline__ void expect(uint64_t* bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(smem(bar)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy(float* to, const float* from, int bytes, uint64_t* bar) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem(to)),
        "l"(from), "r"(bytes), "r"(smem(bar))
        : "memory");
}
__global__ void half_copied_kernel(const float* x, float* y, int n) {
    __shared__ __align__(16) float tile[THREADS];
    __shared__ uint64_t bar;
    const int tid = threadIdx.x;
    initialise(&bar, 1);  // half_init
    if (tid == 0) {
        expect(&bar, sizeof tile / 2);         // half_expect
        copy(tile, x, sizeof tile / 2, &bar);  // half_copy
    }
    wait_parity(&bar, 0);  // half_wait
    y[tid] = tile[THREADS - 1 - tid];
}
LAUNCHER(half_copied)

// Bytes that are announced hold the phase up until they are accounted for.
__global__ void bytes_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    __shared__ uint64_t bar;
    const int tid = threadIdx.x;
    initialise(&bar, THREADS);
    tile[tid] = x[tid];
    if (tid == 0) {
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 256;" ::"r"(smem(&bar)) : "memory");
    }
    const uint64_t state = arrive(&bar);
    __syncthreads();
    if (tid == 0) y[THREADS] = test(&bar, state);
    __syncthreads();
    if (tid == 1 || tid == 40)
        asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 128;" ::"r"(smem(&bar)) : "memory");
    wait_parity(&bar, 0);
    y[tid] = tile[THREADS - 1 - tid];
}
LAUNCHER(bytes)

// Copies arrive when they land: with .noinc as one of the expected, without it beside them.
template <bool NOINC>
__device__ void copy_and_arrive(const float* x, float* y) {
    __shared__ alignas(16) float tile[4 * THREADS];
    __shared__ uint64_t bar;
    const int tid = threadIdx.x;
    initialise(&bar, THREADS);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(smem(&tile[4 * tid])), "l"(x + 4 * tid) : "memory");
    if (NOINC) {
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem(&bar)) : "memory");
    } else {
        asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(smem(&bar)) : "memory");
        arrive(&bar);
    }
    wait_parity(&bar, 0);
    for (int k = 0; k < 4; ++k) y[k * THREADS + tid] = tile[4 * THREADS - 1 - k * THREADS - tid];
}
__global__ void noinc_kernel(const float* x, float* y, int n) {
    copy_and_arrive<true>(x, y);
}
LAUNCHER(noinc)
__global__ void inc_kernel(const float* x, float* y, int n) {
    copy_and_arrive<false>(x, y);
}
LAUNCHER(inc)

__global__ void invalidated_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t bar;
    initialise(&bar, THREADS);
    if (threadIdx.x != 0) return;
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(smem(&bar)) : "memory");
    arrive(&bar);
}
LAUNCHER(invalidated)

__global__ void once_too_often_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t bar;
    initialise(&bar, 2);
    if (threadIdx.x != 0) return;
    uint64_t state;
    asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 3;" : "=l"(state) : "r"(smem(&bar)) : "memory");
}
LAUNCHER(once_too_often)

// The number of the phase in place of its parity: right for the first two phases.
__global__ void phase_number_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t bar;
    initialise(&bar, THREADS);
    for (int phase = 0; phase < 3; ++phase) {
        arrive(&bar);
        wait_parity(&bar, phase);
    }
    y[threadIdx.x] = x[threadIdx.x];
}
LAUNCHER(phase_number)

// Nothing arrives at the first of two mbarriers.
__global__ void arrives_at_another_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t bar[2];
    for (int s = 0; s < 2; ++s) initialise(&bar[s], THREADS);
    arrive(&bar[1]);  // at another
    wait_parity(&bar[1], 0);
    wait_parity(&bar[0], 0);
    y[threadIdx.x] = x[threadIdx.x];
}
LAUNCHER(arrives_at_another)

// Bytes are announced again while those of the phase are still to come: the wait before that is for no phase.
__global__ void announced_twice_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full, empty;
    initialise(&full, 1);
    initialise(&empty, 1);
    if (threadIdx.x != 0) return;
    for (int k = 0; k < 2; ++k) {
        wait_parity(&empty, 1);  // at once
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(smem(&full)) : "memory");
    }
}
LAUNCHER(announced_twice)
