// Asynchronous copies and barrier objects: right ones, and one planted hazard where a marker names the line.
#include "kata.cuh"
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>

namespace cg = cooperative_groups;
using BlockBarrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int THREADS = 128;

#define LAUNCHER(name)                                                            \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        name##_kernel<<<1, THREADS, 0, stream>>>(x, y, n);                        \
    }

__device__ __forceinline__ unsigned smem(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
template <int BYTES>
__device__ __forceinline__ void copy(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(smem(to)), "l"(from), "n"(BYTES) : "memory");
}
__device__ __forceinline__ void copy_part(void* to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(smem(to)), "l"(from), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT>
__device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// ---- groups

// y[i] = x[n - 1 - i] through shared memory
template <bool WAITS, bool SYNCHRONISES>
__device__ __forceinline__ void reverse(const float* x, float* y, float* tile, int n) {
    const int tid = threadIdx.x;
    copy<4>(tile + tid, x + tid);
    commit();
    if (WAITS) wait<0>();
    if (SYNCHRONISES) __syncthreads();
}
__global__ void groups_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    reverse<true, true>(x, y, tile, n);
    y[threadIdx.x] = tile[THREADS - 1 - threadIdx.x];
}
LAUNCHER(groups)

__global__ void groups_no_wait_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    reverse<false, true>(x, y, tile, n);
    y[threadIdx.x] = tile[THREADS - 1 - threadIdx.x];  // groups_no_wait
}
LAUNCHER(groups_no_wait)

// A copy that is in no group: the wait waits for committed groups.
__global__ void groups_no_commit_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    copy<4>(tile + threadIdx.x, x + threadIdx.x);
    wait<0>();
    y[threadIdx.x] = tile[threadIdx.x];  // groups_no_commit
}
LAUNCHER(groups_no_commit)

// Two copies to the same bytes are in one group: either may land last.
__global__ void groups_twice_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    copy<4>(tile + threadIdx.x, x + threadIdx.x + THREADS);
    copy<4>(tile + threadIdx.x, x + threadIdx.x);  // groups_twice
    commit();
    wait<0>();
    y[threadIdx.x] = tile[threadIdx.x];
}
LAUNCHER(groups_twice)

// In two groups they land one after the other.
__global__ void groups_in_turn_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    copy<4>(tile + threadIdx.x, x + THREADS - 1 - threadIdx.x + THREADS);
    commit();
    copy<4>(tile + threadIdx.x, x + THREADS - 1 - threadIdx.x);
    commit();
    wait<0>();
    y[threadIdx.x] = tile[threadIdx.x];
}
LAUNCHER(groups_in_turn)

__device__ __forceinline__ float fetched(const float* tile) {
    return tile[threadIdx.x];  // groups_in_helper
}

__global__ void groups_in_helper_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    copy<4>(tile + threadIdx.x, x + threadIdx.x);
    commit();
    y[threadIdx.x] = fetched(tile);  // call of the helper
}
LAUNCHER(groups_in_helper)

__global__ void groups_no_barrier_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    reverse<true, false>(x, y, tile, n);
    y[threadIdx.x] = tile[THREADS - 1 - threadIdx.x];  // groups_no_barrier
}
LAUNCHER(groups_no_barrier)

// The wait comes after the barrier: the other threads' copies are not waited for by this barrier.
__global__ void groups_late_wait_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    const int tid = threadIdx.x;
    copy<4>(tile + tid, x + tid);
    commit();
    __syncthreads();
    wait<0>();
    y[tid] = tile[THREADS - 1 - tid];  // groups_late_wait
}
LAUNCHER(groups_late_wait)

// Two buffers, the next tile is on its way while this one is read.
template <int LEFT>
__device__ __forceinline__ void two_buffers(const float* x, float* y, int n) {
    __shared__ alignas(16) float tile[2][THREADS * 4];
    const int tid = threadIdx.x, tiles = n / (THREADS * 4);
    copy<16>(tile[0] + 4 * tid, x + 4 * tid);
    commit();
    for (int k = 0; k < tiles; ++k) {
        if (k + 1 < tiles) copy<16>(tile[(k + 1) % 2] + 4 * tid, x + (k + 1) * THREADS * 4 + 4 * tid);
        commit();
        wait<LEFT>();
        __syncthreads();
        for (int i = tid; i < THREADS * 4; i += THREADS)
            y[k * THREADS * 4 + i] = tile[k % 2][THREADS * 4 - 1 - i];  // buffers_early
        __syncthreads();
    }
}
__global__ void buffers_kernel(const float* x, float* y, int n) {
    two_buffers<1>(x, y, n);
}
LAUNCHER(buffers)
__global__ void buffers_early_kernel(const float* x, float* y, int n) {
    two_buffers<2>(x, y, n);
}
LAUNCHER(buffers_early)

// A ring of three tiles of two rows each, two of them copied ahead. A round without a copy has an empty group, if ALL.
template <int LEFT, int READ, int FILL, bool ALL = true>
__device__ __forceinline__ void ring(const float* x, float* y, int n) {
    __shared__ float tile[3][2][THREADS / 2];
    const int tid = threadIdx.x, tiles = n / THREADS, from = THREADS - 1 - tid;
    const auto load = [&](int k, int slot) {
        if (k < tiles) copy<4>(&tile[slot % 3][tid / 64][tid % 64], x + k * THREADS + tid);  // ring's copy
        if (ALL || k < tiles) commit();
    };
    load(0, 0);
    load(1, 1);
    for (int k = 0; k < tiles; ++k) {
        wait<LEFT>();  // ring's wait
        __syncthreads();
        load(k + 2, k + 2 + FILL);
        y[k * THREADS + tid] = tile[(k + READ) % 3][from / 64][from % 64];  // ring's read
    }
}
__global__ void ring_kernel(const float* x, float* y, int n) {
    ring<1, 0, 0>(x, y, n);
}
LAUNCHER(ring)
__global__ void ring_waits_for_too_few_kernel(const float* x, float* y, int n) {
    ring<2, 0, 0>(x, y, n);
}
LAUNCHER(ring_waits_for_too_few)
__global__ void ring_commits_only_copies_kernel(const float* x, float* y, int n) {
    ring<1, 0, 0, false>(x, y, n);
}
LAUNCHER(ring_commits_only_copies)
__global__ void ring_reads_the_next_kernel(const float* x, float* y, int n) {
    ring<1, 1, 0>(x, y, n);
}
LAUNCHER(ring_reads_the_next)
__global__ void ring_reads_the_last_kernel(const float* x, float* y, int n) {
    ring<1, 2, 0>(x, y, n);
}
LAUNCHER(ring_reads_the_last)
__global__ void ring_copies_again_kernel(const float* x, float* y, int n) {
    ring<1, 0, 1>(x, y, n);
}
LAUNCHER(ring_copies_again)

// The copy comes after the wait.
__global__ void copied_late_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    const int tid = threadIdx.x;
    wait<0>();
    copy<4>(tile + tid, x + tid);
    commit();
    __syncthreads();
    y[tid] = tile[THREADS - 1 - tid];  // copied_late
}
LAUNCHER(copied_late)

// wait_all needs no commit; the second copy comes after it.
__global__ void copied_twice_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    const int tid = threadIdx.x;
    copy<4>(tile + tid, x + tid);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    copy<4>(tile + tid, x + THREADS + tid);
    y[tid] = tile[THREADS - 1 - tid];  // copied_twice
}
LAUNCHER(copied_twice)

// The wait is in a branch that is not taken.
__global__ void wait_is_skipped_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    const int tid = threadIdx.x;
    copy<4>(tile + tid, x + tid);
    if (n < THREADS) asm volatile("cp.async.wait_all;" ::: "memory");  // wait_is_skipped's wait
    __syncthreads();
    y[tid] = tile[THREADS - 1 - tid];  // wait_is_skipped
}
LAUNCHER(wait_is_skipped)

// No group is committed between the two waits, which are no rounds of a loop.
__global__ void waits_twice_kernel(const float* x, float* y, int n) {
    __shared__ float tile[2][THREADS];
    const int tid = threadIdx.x;
    for (int k = 0; k < 2; ++k) {
        copy<4>(&tile[k][tid], x + k * THREADS + tid);
        commit();
    }
    wait<1>();  // waits_twice's first
    __syncthreads();
    float sum = tile[0][THREADS - 1 - tid];
    wait<1>();  // waits_twice's second
    __syncthreads();
    y[tid] = sum + tile[1][THREADS - 1 - tid];  // waits_twice
}
LAUNCHER(waits_twice)

// The tail is filled with zeros: only `left` bytes are read.
__global__ void zero_fill_kernel(const float* x, float* y, int n) {
    __shared__ alignas(16) float tile[THREADS * 4];
    const int tid = threadIdx.x, left = max(0, min(4, n - 4 * tid)) * 4;
    copy_part(tile + 4 * tid, x + 4 * tid, left);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (int i = tid; i < THREADS * 4; i += THREADS) y[i] = tile[i];
}
LAUNCHER(zero_fill)

// The predicate form: what is ignored is not even looked at.
__global__ void ignored_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    const int tid = threadIdx.x;
    asm volatile("{\n .reg .pred p;\n setp.ge.s32 p, %2, %3;\n cp.async.ca.shared.global [%0], [%1], 4, p;\n}" ::"r"(
                     smem(tile + tid)),
                 "l"(x + tid), "r"(tid), "r"(n)
                 : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    y[tid] = tile[tid];
}
LAUNCHER(ignored)

__global__ void copy_past_kernel(const float* x, float* y, int n) {
    __shared__ float tile[THREADS];
    const int tid = threadIdx.x;
    copy<4>(tile + tid, x + tid + n - THREADS + 1);  // copy_past
    asm volatile("cp.async.wait_all;" ::: "memory");
    y[tid] = tile[tid];
}
LAUNCHER(copy_past)

__global__ void copy_misaligned_kernel(const float* x, float* y, int n) {
    __shared__ alignas(16) float tile[THREADS * 4];
    copy<16>(tile + 4 * threadIdx.x, x + 4 * threadIdx.x + 1);  // copy_misaligned
    asm volatile("cp.async.wait_all;" ::: "memory");
    y[threadIdx.x] = tile[threadIdx.x];
}
LAUNCHER(copy_misaligned)

// 17 of 16 bytes
__global__ void copy_more_than_all_kernel(const float* x, float* y, int n) {
    __shared__ alignas(16) float tile[THREADS * 4];
    const int tid = threadIdx.x;
    copy_part(tile + 4 * tid, x + 4 * tid, 4 * tid < n ? 17 : 0);  // copy_more_than_all
    asm volatile("cp.async.wait_all;" ::: "memory");
    y[tid] = tile[4 * tid];
}
LAUNCHER(copy_more_than_all)

// ---- barrier objects

__global__ void object_kernel(const float* x, float* y, int n) {
    __shared__ BlockBarrier bar;
    __shared__ float tile[THREADS];
    const int tid = threadIdx.x;
    if (tid == 0) init(&bar, THREADS);
    __syncthreads();
    cuda::memcpy_async(tile + tid, x + tid, cuda::aligned_size_t<4>(4), bar);
    bar.arrive_and_wait();
    y[tid] = tile[THREADS - 1 - tid];
    auto token = bar.arrive();
    bar.wait(std::move(token));
    tile[tid] = 0;
}
LAUNCHER(object)

// Plain writes, ordered by the barrier object alone, over several phases.
__global__ void phases_kernel(const float* x, float* y, int n) {
    __shared__ BlockBarrier bar;
    __shared__ float tile[THREADS];
    const int tid = threadIdx.x;
    if (tid == 0) init(&bar, THREADS);
    __syncthreads();
    float value = x[tid];
    for (int k = 0; k < 5; ++k) {
        tile[tid] = value;
        bar.arrive_and_wait();
        value = tile[(tid + 1) % THREADS];
        bar.arrive_and_wait();
    }
    y[tid] = value;
}
LAUNCHER(phases)

__global__ void object_race_kernel(const float* x, float* y, int n) {
    __shared__ BlockBarrier bar;
    __shared__ float tile[THREADS];
    const int tid = threadIdx.x;
    if (tid == 0) init(&bar, THREADS);
    __syncthreads();
    tile[tid] = x[tid];
    bar.arrive_and_wait();
    const float value = tile[(tid + 32) % THREADS];  // object_race
    tile[tid] = value;
    y[tid] = value;
}
LAUNCHER(object_race)

__global__ void object_deadlock_kernel(const float* x, float* y, int n) {
    __shared__ BlockBarrier bar;
    if (threadIdx.x == 0) init(&bar, THREADS + 1);
    __syncthreads();
    bar.arrive_and_wait();
    y[threadIdx.x] = x[threadIdx.x];
}
LAUNCHER(object_deadlock)

__global__ void uninitialised_object_kernel(const float* x, float* y, int n) {
    __shared__ alignas(8) unsigned long long bar;
    if (threadIdx.x == 0) bar = 0;
    __syncthreads();
    asm volatile(
        "{\n .reg .b64 t;\n mbarrier.arrive.shared.b64 t, [%0];\n}" ::"r"(smem(&bar)));  // uninitialised_object
    y[threadIdx.x] = x[threadIdx.x];
}
LAUNCHER(uninitialised_object)

// ---- pipelines and groups of threads

__global__ void pipeline_kernel(const float* x, float* y, int n) {
    __shared__ float tile[2][THREADS];
    const int tid = threadIdx.x, tiles = n / THREADS;
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(&tile[0][tid], x + tid, cuda::aligned_size_t<4>(4), pipe);
    pipe.producer_commit();
    for (int k = 0; k < tiles; ++k) {
        pipe.producer_acquire();
        if (k + 1 < tiles)
            cuda::memcpy_async(&tile[(k + 1) % 2][tid], x + tid + (k + 1) * THREADS, cuda::aligned_size_t<4>(4), pipe);
        pipe.producer_commit();
        cuda::pipeline_consumer_wait_prior<1>(pipe);
        __syncthreads();
        y[tid + k * THREADS] = tile[k % 2][THREADS - 1 - tid];
        __syncthreads();
        pipe.consumer_release();
    }
}
LAUNCHER(pipeline)

__global__ void shared_pipeline_kernel(const float* x, float* y, int n) {
    __shared__ alignas(16) float tile[2][THREADS];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    const int tiles = n / THREADS;
    for (int fetched = 0, k = 0; k < tiles; ++k) {
        for (; fetched < tiles && fetched < k + 2; ++fetched) {
            pipe.producer_acquire();
            cuda::memcpy_async(
                block, &tile[fetched % 2][0], x + fetched * THREADS, cuda::aligned_size_t<16>(4 * THREADS), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        y[threadIdx.x + k * THREADS] = tile[k % 2][THREADS - 1 - threadIdx.x];
        pipe.consumer_release();
    }
}
LAUNCHER(shared_pipeline)

__global__ void cooperative_copy_kernel(const float* x, float* y, int n) {
    __shared__ alignas(16) float tile[THREADS];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile, x, sizeof(float) * THREADS);
    cg::wait(block);
    y[threadIdx.x] = tile[THREADS - 1 - threadIdx.x];
}
LAUNCHER(cooperative_copy)
