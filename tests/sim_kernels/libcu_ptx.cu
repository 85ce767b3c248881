// cuda::ptx and cooperative_groups on Hopper: the forms in which the toolkit's headers write the same instructions.
#include "hopper.cuh"
#include <cooperative_groups.h>
#include <cuda/ptx>
#include <utility>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

constexpr int THREADS = 64, SIZE = 2;

// Block 0 brings a tile to both; each adds its rank to it and stores it; the last row of y gets both sums.
__global__ void __cluster_dims__(SIZE, 1, 1)
    everything_kernel(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[THREADS], sums[THREADS];
    __shared__ alignas(8) uint64_t bar, inbox_bar;
    __shared__ alignas(16) int inbox;
    cg::cluster_group cluster = cg::this_cluster();
    const int tid = threadIdx.x;
    const unsigned rank = cluster.block_rank(), other = rank ^ 1;
    if (tid == 0) {
        ptx::mbarrier_init(&bar, 1);
        ptx::mbarrier_init(&inbox_bar, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, sizeof tile);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &inbox_bar, sizeof inbox);
    }
    ptx::barrier_cluster_arrive(ptx::sem_release);
    ptx::barrier_cluster_wait(ptx::sem_acquire);
    const int at[2] = {0, 0}, to[2] = {0, int(rank)};
    if (tid == 0 && rank == 0)
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &in, at, &bar, uint16_t(3));
    if (tid == 0)
        ptx::st_async(
            cluster.map_shared_rank(&inbox, other), int(rank + 10), cluster.map_shared_rank(&inbox_bar, other));
    while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cta, &bar, 0)) {
    }
    while (!ptx::mbarrier_try_wait_parity(&inbox_bar, 0)) {
    }
    sums[tid] = tile[tid] + float(inbox);
    ptx::fence_proxy_async(ptx::space_shared);
    auto token = cluster.barrier_arrive();
    __syncthreads();
    const int last[2] = {0, SIZE};
    if (tid == 0) {
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &out, to, sums);
        ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_add, &out, last, sums);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
    cluster.barrier_wait(std::move(token));
}
KATA_EXPORT void everything(const float* x, float* y, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, (SIZE + 1) * THREADS * sizeof(float), stream);
    everything_kernel<<<SIZE, THREADS, 0, stream>>>(
        float_map(x, 1, THREADS, 1, THREADS), float_map(y, SIZE + 1, THREADS, 1, THREADS));
}
