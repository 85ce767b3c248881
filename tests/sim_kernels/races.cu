// Fifty racy kernels. Each one is found, whatever the schedule is; those that need luck are named in the test.
#include "synchronisation.cuh"

// ---- a warp that did not meet: one lane speaks for lanes that have not come

__global__ void no_warp_barrier_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];
    y[i] = tile[(i & 32) | ((i + 1) & 31)];
}
LAUNCHER(no_warp_barrier, 1, 64)

// Count 1: lane 0 arrives for 32 lanes that wrote.
__global__ void lane_arrives_for_warp_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 1);
    __syncthreads();
    if (warp == 0) {
        tile[lane] = x[lane];
        if (lane == 0) arrive(&full);
    } else {
        wait(&full, 0);
        y[lane] = tile[lane];
    }
}
LAUNCHER(lane_arrives_for_warp, 1, 64)

// A vote is not a barrier: it orders no memory.
__global__ void vote_is_no_barrier_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 1);
    __syncthreads();
    if (warp == 0) {
        tile[lane] = x[lane];
        if (__any_sync(~0u, x[lane] >= 0) && lane == 0) arrive(&full);
    } else {
        wait(&full, 0);
        y[lane] = tile[lane];
    }
}
LAUNCHER(vote_is_no_barrier, 1, 64)

__global__ void lane_counts_for_warp_kernel(const float* x, float* y, int n) {
    __shared__ bool last;
    int i = threadIdx.x;
    y[32 + blockIdx.x * 32 + i] = x[i];
    if (i == 0) {
        __threadfence();
        last = atomicInc(&words[0], gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[32 + b * 32 + (31 - i)];
    y[i] = sum;
}
LAUNCHER(lane_counts_for_warp, 3, 32)

__global__ void lane_flags_for_warp_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (blockIdx.x == 0) {
        y[i] = x[i];
        if (i == 0) {
            __threadfence();
            set(&words[0], 1);
        }
    } else if (i == 0) {
        await(&words[0], 1);
        __threadfence();
        y[64] = y[5];
    }
}
LAUNCHER(lane_flags_for_warp, 2, 32)

__global__ void lane_flags_in_the_block_kernel(const float* x, float* y, int n) {
    __shared__ unsigned int flag;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (warp == 0) {
        tile[lane] = x[lane];
        if (lane == 0) {
            __threadfence_block();
            set(&flag, 1);
        }
    } else {
        await(&flag, 1);
        __threadfence_block();
        y[lane] = tile[lane];
    }
}
LAUNCHER(lane_flags_in_the_block, 1, 64)

__global__ void lane_waits_for_warp_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 32);
    __syncthreads();
    if (warp == 0) {
        tile[lane] = x[lane];
        arrive(&full);
    } else {
        if (lane == 0) wait(&full, 0);
        y[lane] = tile[lane];
    }
}
LAUNCHER(lane_waits_for_warp, 1, 64)

__global__ void lane_awaits_flag_for_warp_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (blockIdx.x == 0) {
        y[i] = x[i];
        __syncwarp();
        __threadfence();
        if (i == 0) set(&words[0], 1);
    } else {
        if (i == 0) {
            await(&words[0], 1);
            __threadfence();
        }
        y[64 + i] = y[31 - i];
    }
}
LAUNCHER(lane_awaits_flag_for_warp, 2, 32)

__global__ void lane_unlocks_for_warp_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i == 0) {
        while (atomicCAS(&words[0], 0u, 1u) != 0u) {
        }
        __threadfence();
    }
    __syncwarp();
    y[i] += x[i];
    if (i == 0) {
        __threadfence();
        atomicExch(&words[0], 0u);
    }
}
LAUNCHER(lane_unlocks_for_warp, 3, 32)

__global__ void half_met_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 1);
    __syncthreads();
    if (warp == 0) {
        tile[lane] = x[lane];
        __syncwarp(lane < 16 ? 0xffffu : 0xffff0000u);
        if (lane == 16) arrive(&full);
    } else {
        wait(&full, 0);
        y[lane] = tile[lane];
    }
}
LAUNCHER(half_met, 1, 64)

__global__ void halves_exchange_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    tile[i] = x[i];
    __syncwarp(i < 16 ? 0xffffu : 0xffff0000u);
    y[i] = tile[31 - i];
}
LAUNCHER(halves_exchange, 1, 32)

__global__ void quarters_exchange_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    tile[i] = x[i];
    unsigned int quarter = 0xffu << (i & 24);
    __syncwarp(quarter);
    float near = tile[i ^ 7];
    __syncwarp(quarter);
    y[i] = near + tile[i ^ 8];
}
LAUNCHER(quarters_exchange, 1, 32)

__global__ void branches_meet_apart_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    if (i & 1) {
        tile[i] = x[i];
        __syncwarp(0xaaaaaaaau);
    } else {
        tile[i] = -x[i];
        __syncwarp(0x55555555u);
    }
    y[i] = tile[i ^ 1];
}
LAUNCHER(branches_meet_apart, 1, 32)

__global__ void ballot_is_no_barrier_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    tile[i] = x[i];
    unsigned int positive = __ballot_sync(~0u, x[i] > 0);
    y[i] = tile[31 - i] + __popc(positive);
}
LAUNCHER(ballot_is_no_barrier, 1, 32)

__global__ void unrolled_tree_kernel(const float* x, float* y, int n) {
    __shared__ float sum[64];
    int i = threadIdx.x;
    sum[i] = x[i];
    __syncthreads();
    if (i < 32) {
        sum[i] += sum[i + 32];
        __syncwarp();
        if (i < 16) sum[i] += sum[i + 16];
        if (i < 8) sum[i] += sum[i + 8];
        if (i == 0) y[0] = sum[0];
    }
}
LAUNCHER(unrolled_tree, 1, 64)

// Half of the arrivals end the phase: the other half of the tile may not be there.
__global__ void count_too_small_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 16);
    __syncthreads();
    if (warp == 0) {
        tile[lane] = x[lane];
        arrive(&full);
    } else {
        wait(&full, 0);
        y[lane] = tile[lane];
    }
}
LAUNCHER(count_too_small, 1, 64)

// ---- shuffles

__global__ void shuffle_from_outside_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    float v = x[i];
    if (i < 16) v = __shfl_sync(0x0000ffffu, v, i + 16);
    y[i] = v;
}
LAUNCHER(shuffle_from_outside, 1, 32)

__global__ void tree_of_twenty_lanes_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i >= 20) return;
    float v = x[i];
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(0xfffffu, v, offset);
    if (i == 0) y[0] = v;
}
LAUNCHER(tree_of_twenty_lanes, 1, 32)

__global__ void butterfly_of_half_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < 16) y[i] = x[i] + __shfl_xor_sync(0xffffu, x[i], 16);
}
LAUNCHER(butterfly_of_half, 1, 32)

__global__ void shuffled_address_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x, place = i;
    if (i & 1) place = __shfl_sync(0xaaaaaaaau, i, i - 1);
    y[place & 63] = x[i];
}
LAUNCHER(shuffled_address, 1, 32)

__global__ void shuffled_decision_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < 8) {
        float next = __shfl_down_sync(0xffu, x[i], 1);
        if (next > x[i]) y[i] = 1;
    }
}
LAUNCHER(shuffled_decision, 1, 32)

// ---- asynchronous copies

__global__ void pipeline_without_barrier_kernel(const float* x, float* y, int n) {
    __shared__ float tile[2][128];
    int i = threadIdx.x;
    float sum = 0;
    copy4(&tile[0][i], &x[i]);
    __pipeline_commit();
    for (int k = 0; k < 4; ++k) {
        copy4(&tile[(k + 1) & 1][i], &x[(i + k) & 127]);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        sum += tile[k & 1][127 - i];
    }
    __pipeline_wait_prior(0);
    y[i] = sum;
}
LAUNCHER(pipeline_without_barrier, 1, 128)

__global__ void copy_without_barrier_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    copy4(&tile[i], &x[i]);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[i] = tile[63 - i];
}
LAUNCHER(copy_without_barrier, 1, 64)

__global__ void barrier_before_the_wait_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    copy4(&tile[i], &x[i]);
    __pipeline_commit();
    __syncthreads();
    __pipeline_wait_prior(0);
    y[i] = tile[63 - i];
}
LAUNCHER(barrier_before_the_wait, 1, 64)

__global__ void one_group_too_many_kernel(const float* x, float* y, int n) {
    __shared__ float tile[2][64];
    int i = threadIdx.x;
    copy4(&tile[0][i], &x[i]);
    __pipeline_commit();
    copy4(&tile[1][i], &x[64 + i]);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    y[i] = tile[1][i];
}
LAUNCHER(one_group_too_many, 1, 64)

__global__ void own_source_overwritten_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    y[i] = x[i];
    copy4(&tile[i], &y[i]);
    __pipeline_commit();
    y[i] = -1;
    __pipeline_wait_prior(0);
    y[64 + i] = tile[i];
}
LAUNCHER(own_source_overwritten, 1, 32)

__global__ void source_overwritten_after_barrier_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    y[i] = x[i];
    __syncthreads();
    copy4(&tile[i], &y[i]);
    __pipeline_commit();
    __syncthreads();
    y[63 - i] = -1;
    __syncthreads();
    __pipeline_wait_prior(0);
    y[64 + i] = tile[i];
}
LAUNCHER(source_overwritten_after_barrier, 1, 64)

__global__ void bulk_source_overwritten_kernel(const float* x, float* y, int n) {
    __shared__ alignas(16) float tile[32];
    __shared__ uint64_t full;
    float* aligned = reinterpret_cast<float*>((reinterpret_cast<uint64_t>(y) + 15) / 16 * 16);
    int i = threadIdx.x;
    if (i == 0) init(&full, 1);
    aligned[i] = x[i];
    __syncthreads();
    asm volatile("fence.proxy.async;" ::: "memory");
    if (i == 0) {
        arrive_expecting(&full, 128);
        bulk_load(tile, aligned, 128, &full);
        aligned[3] = -1;
    }
    wait(&full, 0);
    y[64 + i] = tile[i];
}
LAUNCHER(bulk_source_overwritten, 1, 32)

__global__ void destination_overwritten_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    copy4(&tile[i], &x[i]);
    __pipeline_commit();
    tile[i] = 0;
    __pipeline_wait_prior(0);
    y[i] = tile[i];
}
LAUNCHER(destination_overwritten, 1, 32)

// Lane 0's copies alone arrive.
__global__ void copies_of_one_lane_arrive_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 1);
    __syncthreads();
    if (warp == 0) {
        copy4(&tile[lane], &x[lane]);
        if (lane == 0) arrive_with_copies(&full);
        __pipeline_wait_prior(0);
    } else {
        wait(&full, 0);
        y[lane] = tile[lane];
    }
}
LAUNCHER(copies_of_one_lane_arrive, 1, 64)

// ---- mbarriers

__global__ void wrong_parity_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 32);
    __syncthreads();
    if (warp == 0) {
        tile[lane] = x[lane];
        arrive(&full);
    } else {
        wait(&full, 1);
        y[lane] = tile[lane];
    }
}
LAUNCHER(wrong_parity, 1, 64)

__global__ void count_too_large_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 33);
    __syncthreads();
    if (warp == 0) {
        tile[lane] = x[lane];
        arrive(&full);
    } else {
        wait(&full, 0);
        y[lane] = tile[lane];
    }
}
LAUNCHER(count_too_large, 1, 64)

__global__ void no_barrier_after_init_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    if (threadIdx.x == 0) init(&full, 64);
    arrive(&full);
    wait(&full, 0);
    y[threadIdx.x] = x[threadIdx.x];
}
LAUNCHER(no_barrier_after_init, 1, 64)

__global__ void no_warp_barrier_after_init_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    if (threadIdx.x == 0) init(&full, 32);
    arrive(&full);
    wait(&full, 0);
    y[threadIdx.x] = x[threadIdx.x];
}
LAUNCHER(no_warp_barrier_after_init, 1, 32)

__global__ void init_between_phases_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    for (int k = 0; k < 2; ++k) {
        if (threadIdx.x == 0) init(&full, 64);
        __syncthreads();
        arrive(&full);
        wait(&full, 0);
    }
    y[threadIdx.x] = x[threadIdx.x];
}
LAUNCHER(init_between_phases, 1, 64)

// No thread says that the stage is empty.
__global__ void stage_filled_again_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 32);
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 3; ++k) {
        if (warp == 0) {
            tile[lane] = x[k * 32 + lane];
            arrive(&full);
        } else {
            wait(&full, k & 1);
            sum += tile[31 - lane];
        }
    }
    if (warp == 1) y[lane] = sum;
}
LAUNCHER(stage_filled_again, 1, 64)

__global__ void lane_empties_for_warp_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full, empty;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 32), init(&empty, 1);
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 3; ++k) {
        if (warp == 0) {
            wait(&empty, (k & 1) ^ 1);
            tile[lane] = x[k * 32 + lane];
            arrive(&full);
        } else {
            wait(&full, k & 1);
            sum += tile[31 - lane];
            if (lane == 0) arrive(&empty);
        }
    }
    if (warp == 1) y[lane] = sum;
}
LAUNCHER(lane_empties_for_warp, 1, 64)

// ---- barriers of the block

__global__ void no_barrier_between_rounds_kernel(const float* x, float* y, int n) {
    __shared__ float tile[128];
    float sum = 0;
    int i = threadIdx.x;
    for (int k = 0; k < 4; ++k) {
        tile[i] = x[i + k];
        __syncthreads();
        sum += tile[127 - i];
    }
    y[i] = sum;
}
LAUNCHER(no_barrier_between_rounds, 1, 128)

__global__ void other_named_barrier_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp == 0) {
        tile[lane] = x[lane];
        bar_arrive(1, 64);
    } else {
        bar_sync(2, 32);
        y[lane] = tile[lane];
    }
}
LAUNCHER(other_named_barrier, 1, 64)

__global__ void written_after_arrival_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp == 0) {
        bar_arrive(1, 64);
        tile[lane] = x[lane];
    } else {
        bar_sync(1, 64);
        y[lane] = tile[lane];
    }
}
LAUNCHER(written_after_arrival, 1, 64)

// Each bin is cleared by its own thread, and others add to it at once.
__global__ void bins_cleared_beside_atomics_kernel(const float* x, float* y, int n) {
    __shared__ unsigned int bins[64];
    int i = threadIdx.x;
    bins[i] = 0;
    atomicAdd(&bins[i], 1u);
    atomicAdd(&bins[63 - i], 1u);
    __syncthreads();
    y[i] = bins[i];
}
LAUNCHER(bins_cleared_beside_atomics, 1, 64)

__global__ void bins_read_beside_atomics_kernel(const float* x, float* y, int n) {
    __shared__ unsigned int bins[64];
    int i = threadIdx.x;
    bins[i] = 0;
    __syncthreads();
    atomicAdd(&bins[63 - i], 1u);
    __syncwarp();
    y[i] = bins[i];
}
LAUNCHER(bins_read_beside_atomics, 1, 64)

__global__ void after_nine_thousand_barriers_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    for (int k = 0; k < 9000; ++k) __syncthreads();
    y[i] = x[i];
    y[64 + i] = y[63 - i];
}
LAUNCHER(after_nine_thousand_barriers, 1, 64)

__global__ void reused_after_nine_thousand_barriers_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    for (int k = 0; k < 9000; ++k) __syncthreads();
    y[i] = x[i];
    __syncthreads();
    float v = y[63 - i];
    y[i] = v + 1;
    y[64 + i] = v;
}
LAUNCHER(reused_after_nine_thousand_barriers, 1, 64)

__global__ void after_nine_thousand_fences_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    for (int k = 0; k < 9000; ++k) __threadfence();
    y[blockIdx.x * 64 + i] = x[i];
    y[128 + blockIdx.x * 64 + i] = y[blockIdx.x * 64 + 63 - i];
}
LAUNCHER(after_nine_thousand_fences, 2, 64)

// ---- blocks

__global__ void flag_without_fence_kernel(const float* x, float* y, int n) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[8] = x[3];
        atomicExch(&words[0], 1u);
    } else {
        while (atomicAdd(&words[0], 0u) == 0u) {
        }
        y[9] = y[8];
    }
}
LAUNCHER(flag_without_fence, 2, 32)

__global__ void lock_without_fence_kernel(const float* x, float* y, int n) {
    if (threadIdx.x) return;
    while (atomicCAS(&words[0], 0u, 1u) != 0u) {
    }
    y[0] = y[0] + x[blockIdx.x];
    set(&words[0], 0);
}
LAUNCHER(lock_without_fence, 4, 32)

// One flag for two rounds; who writes does not wait until the first one has been read.
__global__ void flag_reused_kernel(const float* x, float* y, int n) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        for (int round = 0; round < 2; ++round) {
            y[10] = x[round];
            __threadfence();
            set(&words[0], 1);
            if (round == 0) {
                __nanosleep(100);
                set(&words[0], 0);
            }
        }
    } else {
        await(&words[0], 1);
        __threadfence();
        y[11] = y[10];
    }
}
LAUNCHER(flag_reused, 2, 32)

// What it counted says nothing of the others, which may count later: seen only where one does.
__global__ void first_block_sets_back_kernel(const float* x, float* y, int n) {
    if (threadIdx.x) return;
    atomicAdd(&words[0], 1u);
    __threadfence();
    if (blockIdx.x == 0) words[0] = 0;
}
LAUNCHER(first_block_sets_back, 2, 32)

// One that has not counted has not seen what others did.
__global__ void another_block_sets_back_kernel(const float* x, float* y, int n) {
    if (threadIdx.x) return;
    if (blockIdx.x < 2) atomicAdd(&words[0], 1u);
    if (blockIdx.x == 2) words[0] = 0;
    __threadfence();
}
LAUNCHER(another_block_sets_back, 3, 32)

// Seen only where block 0 comes first.
__global__ void only_if_set_kernel(const float* x, float* y, int n) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        atomicExch(&words[0], 1u);
        y[20] = x[1];
    } else if (atomicAdd(&words[0], 0u) == 1u) {
        y[21] = y[20];
    }
}
LAUNCHER(only_if_set, 2, 32)

__global__ void grid_barrier_without_fence_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x, b = blockIdx.x;
    y[b * 32 + i] = x[i];
    __syncthreads();
    if (i == 0) {
        atomicAdd(&words[0], 1u);
        while (atomicAdd(&words[0], 0u) % gridDim.x != 0u) {
        }
    }
    __syncthreads();
    y[128 + b * 32 + i] = y[((b + 1) % gridDim.x) * 32 + i];
}
LAUNCHER(grid_barrier_without_fence, 4, 32)

__device__ void grid_barrier(unsigned int* counter) {
    __threadfence();
    atomicAdd(counter, 1u);
    while (atomicAdd(counter, 0u) % gridDim.x != 0u) {
    }
    __threadfence();
}

__global__ void grid_barrier_for_one_thread_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x, b = blockIdx.x;
    y[b * 64 + i] = x[i];
    __syncthreads();
    if (i == 0) grid_barrier(&words[0]);
    y[128 + b * 64 + i] = y[((b + 1) % gridDim.x) * 64 + i];
}
LAUNCHER(grid_barrier_for_one_thread, 2, 64)

__global__ void grid_barrier_too_early_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x, b = blockIdx.x;
    y[b * 64 + i] = x[i];
    if (i == 0) grid_barrier(&words[0]);
    __syncthreads();
    y[128 + b * 64 + i] = y[((b + 1) % gridDim.x) * 64 + i];
}
LAUNCHER(grid_barrier_too_early, 2, 64)

__global__ void fence_behind_the_count_kernel(const float* x, float* y, int n) {
    if (threadIdx.x) return;
    y[1 + blockIdx.x] = x[blockIdx.x];
    bool last = atomicInc(&words[0], gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
    if (!last) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[1 + b];
    y[0] = sum;
}
LAUNCHER(fence_behind_the_count, 4, 32)

__global__ void value_behind_its_flag_kernel(const float* x, float* y, int n) {
    if (threadIdx.x) return;
    int b = blockIdx.x;
    float sum = x[b];
    if (b > 0) {
        await(&words[b - 1], 1);
        __threadfence();
        sum += y[b - 1];
    }
    __threadfence();
    set(&words[b], 1);
    y[b] = sum;
}
LAUNCHER(value_behind_its_flag, 4, 32)

// Lane 0 counts before its warp has met: it does not release what the other lanes wrote.
__global__ void last_warp_that_did_not_meet_kernel(const float* x, float* y, int n) {
    __shared__ unsigned int before;
    int i = threadIdx.x;
    y[64 + blockIdx.x * 32 + i] = x[i];
    if (i == 0) asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], 1;" : "=r"(before) : "l"(&words[0]) : "memory");
    __syncwarp();
    if (before != gridDim.x - 1) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[64 + b * 32 + (31 - i)];
    y[i] = sum;
}
LAUNCHER(last_warp_that_did_not_meet, 3, 32)

// ---- lanes of one instruction that name one place: an address, and not a barrier, is at fault

__global__ void two_lanes_share_a_place_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    tile[i / 2] = x[i];
    __syncthreads();
    y[i] = tile[i / 2];
}
LAUNCHER(two_lanes_share_a_place, 1, 32)

__global__ void two_lanes_share_an_element_kernel(const float* x, float* y, int n) {
    y[threadIdx.x / 2] = x[threadIdx.x];
}
LAUNCHER(two_lanes_share_an_element, 1, 32)

// Not in one round: a barrier between them would do.
__global__ void two_rounds_share_a_place_kernel(const float* x, float* y, int n) {
    __shared__ float tile[34];
    int i = threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < n / 128; ++k) tile[i + k] = x[i];
    __syncthreads();
    y[i] = tile[i];
}
LAUNCHER(two_rounds_share_a_place, 1, 32)
