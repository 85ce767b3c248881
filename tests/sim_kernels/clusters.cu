// Clusters: shared memory of other blocks, their mbarriers, multicast, and the barrier (sm_90).
#include "hopper.cuh"
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

constexpr int THREADS = 64, SIZE = 4;

#define LAUNCHER(name)                                                            \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        name##_kernel<<<n / THREADS, THREADS, 0, stream>>>(x, y);                 \
    }
#define CLUSTER __global__ void __cluster_dims__(SIZE, 1, 1)

// ---- the next block's tile

enum Fault { NONE, NO_FIRST_SYNC, NO_LAST_SYNC, RELAXED, TWICE, NO_ARRIVAL, NO_SUCH_RANK };

template <Fault FAULT>
CLUSTER next_kernel(const float* x, float* y) {
    __shared__ float tile[THREADS];
    const int tid = threadIdx.x;
    tile[tid] = x[blockIdx.x * THREADS + tid];
    if (FAULT == RELAXED)
        cluster_arrive_relaxed();
    else if (FAULT != NO_FIRST_SYNC && FAULT != NO_ARRIVAL)
        cluster_arrive();
    if (FAULT == TWICE) cluster_arrive();        // next_twice
    if (FAULT != NO_FIRST_SYNC) cluster_wait();  // next_wait
    const uint32_t next = FAULT == NO_SUCH_RANK ? SIZE : (rank() + 1) % SIZE;
    y[blockIdx.x * THREADS + tid] = read_remote(address_in(tile + tid, next));  // next_read
    if (FAULT != NO_LAST_SYNC) cluster_sync();
}
#define NEXT(name, fault)                                                         \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        next_kernel<fault><<<n / THREADS, THREADS, 0, stream>>>(x, y);            \
    }
NEXT(next, NONE)
NEXT(next_no_first_sync, NO_FIRST_SYNC)
NEXT(next_no_last_sync, NO_LAST_SYNC)
NEXT(next_relaxed, RELAXED)
NEXT(next_twice, TWICE)
NEXT(next_no_arrival, NO_ARRIVAL)
NEXT(next_no_such_rank, NO_SUCH_RANK)

// ---- cooperative_groups: bins spread over the blocks, and what the group says of itself

__global__ void histogram_kernel(const float* x, float* y) {
    __shared__ int bins[8];
    cg::cluster_group cluster = cg::this_cluster();
    const int tid = threadIdx.x;
    if (tid < 8) bins[tid] = 0;
    cluster.sync();
    const int bin = int(x[blockIdx.x * THREADS + tid]) % (8 * SIZE);
    atomicAdd(cluster.map_shared_rank(&bins[bin % 8], bin / 8), 1);
    cluster.sync();
    if (tid < 8) y[(blockIdx.x / SIZE * SIZE + cluster.block_rank()) * 8 + tid] = float(bins[tid]);
    if (tid == 8) y[gridDim.x * 8 + blockIdx.x] = float(cluster.num_blocks() * 100 + cluster.query_shared_rank(bins));
}
KATA_EXPORT void histogram(const float* x, float* y, int n, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = n / THREADS;
    config.blockDim = THREADS;
    config.stream = stream;
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = SIZE;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, histogram_kernel, x, y);
}

// ---- messages: st.async to the next block, which expects them

template <bool LATE_INIT>
CLUSTER message_kernel(const float* x, float* y) {
    __shared__ float inbox[THREADS];
    __shared__ uint64_t bar;
    const int tid = threadIdx.x;
    if (tid == 0) {
        initialise(&bar, 1);
        fence_initialised();
        expect(&bar, sizeof inbox);
    }
    if (!LATE_INIT) {
        cluster_arrive_relaxed();
        cluster_wait();
    }
    const uint32_t next = (rank() + 1) % SIZE;
    send(inbox + tid, x[blockIdx.x * THREADS + tid], &bar, next);  // message_send
    wait(&bar, 0);
    y[blockIdx.x * THREADS + tid] = inbox[tid];
    cluster_sync();
}
KATA_EXPORT void message(const float* x, float* y, int n, cudaStream_t stream) {
    message_kernel<false><<<n / THREADS, THREADS, 0, stream>>>(x, y);
}
KATA_EXPORT void message_late_init(const float* x, float* y, int n, cudaStream_t stream) {
    message_kernel<true><<<n / THREADS, THREADS, 0, stream>>>(x, y);
}

// In rounds, to every block of the cluster, the own one too. No barrier at the end: a block has got all that is sent.
template <bool LATE_INIT>
CLUSTER rounds_kernel(const float* x, float* y) {
    __shared__ float inbox[2][SIZE];
    __shared__ uint64_t bar[2];
    const int tid = threadIdx.x;
    if (tid == 0) {
        initialise(&bar[0], 1);
        initialise(&bar[1], 1);
        fence_initialised();
    }
    if (LATE_INIT) {  // but long before it is used
        __syncthreads();
        for (int i = 0; i < 1000; ++i) __syncwarp();
    } else {
        cluster_sync();
    }
    float sum = 0;
    for (int round = 0; round < 5; ++round) {
        const int place = round % 2;
        if (tid == 0) expect(&bar[place], sizeof inbox[place]);
        const float value = x[blockIdx.x * THREADS + round];
        if (tid < SIZE) send(&inbox[place][rank()], value, &bar[place], tid);  // rounds_send
        wait(&bar[place], round / 2 % 2);
        for (int r = 0; r < SIZE; ++r) sum += inbox[place][r];
        __syncthreads();
    }
    y[blockIdx.x * THREADS + tid] = sum;
}
KATA_EXPORT void rounds(const float* x, float* y, int n, cudaStream_t stream) {
    rounds_kernel<false><<<n / THREADS, THREADS, 0, stream>>>(x, y);
}
KATA_EXPORT void rounds_late_init(const float* x, float* y, int n, cudaStream_t stream) {
    rounds_kernel<true><<<n / THREADS, THREADS, 0, stream>>>(x, y);
}

// ---- sums: every thread adds to one counter of the next block

template <bool CLEARED, int PAST>
CLUSTER sum_kernel(const float* x, float* y) {
    __shared__ uint32_t counter;
    __shared__ uint64_t bar;
    const int tid = threadIdx.x;
    if (tid == 0) {
        if (CLEARED) counter = 0;
        initialise(&bar, 1);
        fence_initialised();
        expect(&bar, THREADS * sizeof counter);
    }
    cluster_sync();
    add_remote(&counter + PAST, uint32_t(x[blockIdx.x * THREADS + tid]), &bar, (rank() + 1) % SIZE);  // sum_add
    wait(&bar, 0);
    y[blockIdx.x * THREADS + tid] = float(counter);
    cluster_sync();
}
KATA_EXPORT void sum(const float* x, float* y, int n, cudaStream_t stream) {
    sum_kernel<true, 0><<<n / THREADS, THREADS, 0, stream>>>(x, y);
}
KATA_EXPORT void sum_not_cleared(const float* x, float* y, int n, cudaStream_t stream) {
    sum_kernel<false, 0><<<n / THREADS, THREADS, 0, stream>>>(x, y);
}
KATA_EXPORT void sum_past_the_end(const float* x, float* y, int n, cudaStream_t stream) {
    sum_kernel<true, 1 << 20><<<n / THREADS, THREADS, 0, stream>>>(x, y);
}

// ---- a tile that block 0 brings to all of its cluster, again and again

enum Freeing { ALL_FREE, OWN_FREE, NO_LAST_LAP, BAD_MASK, WAITS_REMOTELY };

template <Freeing FREEING>
CLUSTER multicast_kernel(const __grid_constant__ CUtensorMap map, float* y, int rounds) {
    __shared__ alignas(128) float tile[THREADS];
    __shared__ uint64_t full, empty;
    const int tid = threadIdx.x;
    if (tid == 0) {
        initialise(&full, 1);
        initialise(&empty, FREEING == OWN_FREE ? 1 : SIZE);
        fence_initialised();
    }
    cluster_sync();
    float sum = 0;
    for (int i = 0; i < rounds; ++i) {
        if (tid == 0) {
            expect(&full, sizeof tile);
            if (rank() == 0) {
                wait(&empty, (i & 1) ^ 1);
                const int row = blockIdx.x / SIZE * rounds + i, mask = FREEING == BAD_MASK ? 31 : 15;
                load_box_to(tile, &map, 0, row, &full, mask);  // multicast_load
            }
        }
        wait(&full, i & 1);
        sum += tile[THREADS - 1 - tid];  // multicast_read
        __syncthreads();
        if (tid == 0 && (FREEING != OWN_FREE || rank() == 0)) arrive_remote(&empty, 0);  // multicast_free
    }
    y[blockIdx.x * THREADS + tid] = sum;
    if (FREEING == WAITS_REMOTELY && rank() == 1 && tid == 0) test_remote(&empty, 0);  // multicast_wait
    if (FREEING == NO_LAST_LAP) return;
    if (rank() == 0 && tid == 0) wait(&empty, (rounds & 1) ^ 1);  // the last arrivals have come
}
#define MULTICAST(name, freeing)                                                                                    \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) {                                   \
        const int clusters = n / THREADS / SIZE, rounds = 3;                                                        \
        multicast_kernel<freeing>                                                                                   \
            <<<n / THREADS, THREADS, 0, stream>>>(float_map(x, clusters * rounds, THREADS, 1, THREADS), y, rounds); \
    }
MULTICAST(multicast, ALL_FREE)
MULTICAST(multicast_own_free, OWN_FREE)
MULTICAST(multicast_no_last_lap, NO_LAST_LAP)
MULTICAST(multicast_bad_mask, BAD_MASK)
MULTICAST(multicast_waits_remotely, WAITS_REMOTELY)

// ---- shared memory to shared memory, in bulk

CLUSTER bulk_kernel(const float* x, float* y) {
    __shared__ alignas(128) float tile[THREADS], inbox[THREADS];
    __shared__ uint64_t bar;
    const int tid = threadIdx.x;
    tile[tid] = 2 * x[blockIdx.x * THREADS + tid];
    fence_proxy();
    if (tid == 0) {
        initialise(&bar, 1);
        fence_initialised();
        expect(&bar, sizeof inbox);
    }
    cluster_sync();
    const uint32_t next = (rank() + 1) % SIZE;
    if (tid == 0) copy_to_block(inbox, tile, sizeof tile, &bar, next);
    wait(&bar, 0);
    y[blockIdx.x * THREADS + tid] = inbox[tid];
    cluster_sync();
}
LAUNCHER(bulk)

// ---- launches

__global__ void plain_kernel(const float* x, float* y) {
    if (threadIdx.x == 0) y[blockIdx.x] = float(rank());
}
template <class Kernel>
int launch_with(Kernel* kernel, int blocks, int x, int y, const float* from, float* to, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = THREADS;
    config.stream = stream;
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = x;
    cluster.val.clusterDim.y = y;
    cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, from, to);
}
KATA_EXPORT void launch(const float* x, float* y, int blocks, int wide, int high, cudaStream_t stream) {
    launch_with(plain_kernel, blocks, wide, high, x, y, stream);
}
KATA_EXPORT void launch_large(const float* x, float* y, int blocks, int wide, int high, cudaStream_t stream) {
    cudaFuncSetAttribute(plain_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    launch_with(plain_kernel, blocks, wide, high, x, y, stream);
    cudaFuncSetAttribute(plain_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 0);
}
KATA_EXPORT void launch_dims(const float* x, float* y, int blocks, int wide, int high, cudaStream_t stream) {
    launch_with(bulk_kernel, blocks, wide, high, x, y, stream);
}
// y[0] = how many clusters of `wide` blocks run at the same time.
__global__ void tell_kernel(float* y, int clusters) {
    y[0] = float(clusters);
}
KATA_EXPORT void ask(const float*, float* y, int blocks, int wide, int high, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = THREADS;
    config.stream = stream;
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = wide;
    cluster.val.clusterDim.y = high;
    cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = 1;
    int clusters = 0;
    cudaOccupancyMaxActiveClusters(&clusters, plain_kernel, &config);
    tell_kernel<<<1, 1, 0, stream>>>(y, clusters);
}
