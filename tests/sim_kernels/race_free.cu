// Race-free kernels that come as close to a race as they can: no schedule may show one.
#include "synchronisation.cuh"

// ---- warps and their lanes

__global__ void arrives_after_the_warp_met_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full, empty;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 1), init(&empty, 1);
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 6; ++k) {
        if (warp == 0) {
            wait(&empty, (k & 1) ^ 1);
            tile[lane] = x[k * 32 + lane];
            __syncwarp();
            if (lane == 0) arrive(&full);
        } else {
            wait(&full, k & 1);
            sum += tile[31 - lane];
            __syncwarp();
            if (lane == 0) arrive(&empty);
        }
    }
    if (warp == 1) y[lane] = sum;
}
LAUNCHER(arrives_after_the_warp_met, 1, 64)

__global__ void ring_of_two_stages_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full[2], empty[2];
    __shared__ float tile[2][32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0)
        for (int i = 0; i < 2; ++i) init(&full[i], 32), init(&empty[i], 32);
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 6; ++k) {
        int stage = k & 1, parity = (k >> 1) & 1;
        if (warp == 0) {
            wait(&empty[stage], parity ^ 1);
            tile[stage][lane] = x[k * 32 + lane];
            arrive(&full[stage]);
        } else {
            wait(&full[stage], parity);
            sum += tile[stage][31 - lane];
            arrive(&empty[stage]);
        }
    }
    if (warp == 1) y[lane] = sum;
}
LAUNCHER(ring_of_two_stages, 1, 64)

__global__ void lane_waits_then_the_warp_meets_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 32);
    __syncthreads();
    if (warp == 0) {
        tile[lane] = x[lane];
        arrive(&full);
    } else {
        if (lane == 7) wait(&full, 0);
        __syncwarp();
        y[lane] = tile[31 - lane];
    }
}
LAUNCHER(lane_waits_then_the_warp_meets, 1, 64)

// Lanes arrive in four groups, each behind its own branch.
__global__ void quarters_arrive_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 4);
    __syncthreads();
    if (warp == 0) {
        for (int quarter = 0; quarter < 4; ++quarter) {
            if (lane / 8 != quarter) continue;
            tile[lane] = x[lane];
            __syncwarp(0xffu << (8 * quarter));
            if (lane % 8 == 0) arrive(&full);
        }
    } else {
        wait(&full, 0);
        y[lane] = tile[31 - lane];
    }
}
LAUNCHER(quarters_arrive, 1, 64)

__global__ void each_lane_waits_in_its_turn_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 32);
    __syncthreads();
    if (warp == 0) {
        tile[lane] = x[lane];
        arrive(&full);
        return;
    }
    float sum = 0;
    for (int turn = 0; turn < 4; ++turn)
        if (lane % 4 == turn) {
            wait(&full, 0);
            sum += tile[31 - lane];
        }
    y[lane] = sum;
}
LAUNCHER(each_lane_waits_in_its_turn, 1, 64)

__global__ void halves_apart_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    tile[i] = x[i];
    __syncwarp(i < 16 ? 0xffffu : 0xffff0000u);
    y[i] = tile[i ^ 15];
}
LAUNCHER(halves_apart, 1, 32)

// Groups of 2, 4, 8, 16 and 32 lanes meet in turn.
__global__ void growing_groups_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    tile[i] = x[i];
    for (int size = 2; size <= 32; size *= 2) {
        unsigned int mask = size == 32 ? ~0u : ((1u << size) - 1) << (i & ~(size - 1));
        __syncwarp(mask);
        float other = tile[i ^ (size / 2)];
        __syncwarp(mask);
        tile[i] += other;
    }
    y[i] = tile[i];
}
LAUNCHER(growing_groups, 1, 32)

__global__ void branches_meet_in_the_end_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    if (i & 1) {
        tile[i] = x[i];
        __syncwarp(0xaaaaaaaau);
        y[i] = tile[(i + 2) & 31];
    } else {
        tile[i] = -x[i];
        __syncwarp(0x55555555u);
        y[i] = tile[(i + 2) & 31];
    }
    __syncwarp();
    y[i] += tile[i ^ 1];
}
LAUNCHER(branches_meet_in_the_end, 1, 32)

__global__ void some_lanes_left_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init(&full, 1);
    __syncthreads();
    if (warp == 0) {
        if (lane >= 20) return;
        tile[lane] = x[lane];
        __syncwarp(0xfffffu);
        if (lane == 0) arrive(&full);
    } else {
        wait(&full, 0);
        if (lane < 20) y[lane] = tile[19 - lane];
    }
}
LAUNCHER(some_lanes_left, 1, 64)

__global__ void short_block_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[52];
    int i = threadIdx.x;
    if (i == 0) init(&full, 20);
    __syncthreads();
    if (i >= 32) {
        tile[i] = x[i];
        arrive(&full);
    } else {
        wait(&full, 0);
        if (i < 20) y[i] = tile[51 - i];
    }
}
LAUNCHER(short_block, 1, 52)

// ---- shuffles whose nonsense is thrown away

__global__ void last_lane_of_some_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i >= 20) return;
    float v = x[i], next = __shfl_down_sync(0xfffffu, v, 1);
    y[i] = i < 19 ? next - v : 0;
}
LAUNCHER(last_lane_of_some, 1, 32)

__global__ void guarded_tree_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i >= 20) return;
    float v = x[i];
    for (int offset = 16; offset > 0; offset /= 2) {
        float other = __shfl_down_sync(0xfffffu, v, offset);
        if (i + offset < 20) v += other;
    }
    if (i == 0) y[0] = v;
}
LAUNCHER(guarded_tree, 1, 32)

// Lanes at the top add nonsense that never comes down to lane 0.
__global__ void scan_of_some_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i >= 13) return;
    float v = x[i];
    for (int offset = 1; offset < 16; offset *= 2) {
        float other = __shfl_up_sync(0x1fffu, v, offset);
        if (i >= offset) v += other;
    }
    y[i] = v;
}
LAUNCHER(scan_of_some, 1, 32)

__global__ void leader_shuffles_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    unsigned int mask = __ballot_sync(~0u, i % 3 == 0);
    float v = x[i];
    if (i % 3 == 0) v = __shfl_sync(mask, v, __ffs(mask) - 1);
    y[i] = v;
}
LAUNCHER(leader_shuffles, 1, 32)

// ---- asynchronous copies

__global__ void own_copies_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    copy4(&tile[i], &x[i]);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[i] = tile[i];
}
LAUNCHER(own_copies, 1, 64)

__global__ void source_overwritten_when_there_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    y[i] = x[i];
    __syncthreads();
    copy4(&tile[i], &y[i]);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[i] = -1;
    __syncthreads();
    y[63 - i] = tile[i];
}
LAUNCHER(source_overwritten_when_there, 1, 64)

__global__ void neighbours_of_a_copy_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    if (i % 2 == 0) {
        copy4(&tile[i], &x[i]);
        __pipeline_commit();
    } else {
        tile[i] = 0;
    }
    y[i] = x[i];
    __pipeline_wait_prior(0);
    __syncthreads();
    tile[i] += tile[i] * 2;
    __syncthreads();
    y[i] = tile[63 - i];
}
LAUNCHER(neighbours_of_a_copy, 1, 64)

__global__ void pipeline_with_barriers_kernel(const float* x, float* y, int n) {
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
        __syncthreads();
    }
    __pipeline_wait_prior(0);
    y[i] = sum;
}
LAUNCHER(pipeline_with_barriers, 1, 128)

__global__ void copies_arrive_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full[2], empty[2];
    __shared__ float tile[2][32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0)
        for (int i = 0; i < 2; ++i) init(&full[i], 32), init(&empty[i], 1);
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 6; ++k) {
        int stage = k & 1, parity = (k >> 1) & 1;
        if (warp == 0) {
            wait(&empty[stage], parity ^ 1);
            copy4(&tile[stage][lane], &x[k * 32 + lane]);
            arrive_with_copies(&full[stage]);
        } else {
            wait(&full[stage], parity);
            sum += tile[stage][31 - lane];
            __syncwarp();
            if (lane == 31) arrive(&empty[stage]);
        }
    }
    if (warp == 1) y[lane] = sum;
}
LAUNCHER(copies_arrive, 1, 64)

__global__ void bulk_copies_kernel(const float* x, float* y, int n) {
    __shared__ alignas(16) float tile[2][32];
    __shared__ uint64_t full[2];
    const float* aligned = reinterpret_cast<const float*>((reinterpret_cast<uint64_t>(x) + 15) / 16 * 16);
    int i = threadIdx.x;
    if (i == 0) init(&full[0], 1), init(&full[1], 1);
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 4; ++k) {
        int stage = k & 1;
        if (i == 0) {
            arrive_expecting(&full[stage], 128);
            bulk_load(tile[stage], aligned + k * 32, 128, &full[stage]);
        }
        wait(&full[stage], (k >> 1) & 1);
        sum += tile[stage][(i * 5) & 31];
        __syncthreads();
    }
    y[i] = sum;
}
LAUNCHER(bulk_copies, 1, 64)

// ---- barriers of the block

__global__ void one_barrier_a_round_kernel(const float* x, float* y, int n) {
    __shared__ float tile[2][128];
    float sum = 0;
    int i = threadIdx.x;
    tile[0][i] = x[i];
    __syncthreads();
    for (int k = 0; k < 4; ++k) {
        if (k < 3) tile[(k + 1) & 1][i] = x[(i + k + 1) & 127];
        sum += tile[k & 1][127 - i];
        __syncthreads();
    }
    y[i] = sum;
}
LAUNCHER(one_barrier_a_round, 1, 128)

__global__ void named_barriers_kernel(const float* x, float* y, int n) {
    __shared__ float tile[128];
    int i = threadIdx.x, group = i / 64;
    tile[i] = x[i];
    bar_sync(1 + group, 64);
    float v = tile[group * 64 + 63 - (i & 63)];
    bar_sync(1 + group, 64);
    tile[i] = v;
    __syncthreads();
    y[i] = tile[127 - i];
}
LAUNCHER(named_barriers, 1, 128)

__global__ void producer_arrives_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float sum = 0;
    for (int k = 0; k < 4; ++k) {
        if (warp == 0) {
            if (k > 0) bar_sync(2, 64);
            tile[lane] = x[k * 32 + lane];
            bar_arrive(1, 64);
        } else {
            bar_sync(1, 64);
            sum += tile[31 - lane];
            if (k < 3) bar_arrive(2, 64);
        }
    }
    if (warp == 1) y[lane] = sum;
}
LAUNCHER(producer_arrives, 1, 64)

__global__ void vote_of_the_block_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x, round = 0;
    tile[i] = x[i];
    do {
        __syncthreads();
        float other = tile[(i + 1) & 63];
        __syncthreads();
        tile[i] = fmaxf(tile[i], other);
    } while (__syncthreads_or(round++ < 3));
    y[i] = tile[i];
}
LAUNCHER(vote_of_the_block, 1, 64)

__global__ void bins_kernel(const float* x, float* y, int n) {
    __shared__ unsigned int bins[32];
    int i = threadIdx.x;
    for (int round = 0; round < 3; ++round) {
        if (i < 32) bins[i] = round;
        __syncthreads();
        atomicAdd(&bins[int(x[i]) & 31], 1u);
        __syncthreads();
        if (i < 32) y[round * 32 + i] = bins[31 - i];
        __syncthreads();
    }
}
LAUNCHER(bins, 1, 96)

__global__ void global_memory_in_the_block_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    for (int k = 0; k < 9000; ++k) __syncthreads();
    y[i] = x[i];
    __syncthreads();
    float v = y[63 - i];
    __syncthreads();
    y[i] = v + 1;
}
LAUNCHER(global_memory_in_the_block, 1, 64)

__global__ void flags_in_the_block_kernel(const float* x, float* y, int n) {
    __shared__ unsigned int flag;
    __shared__ float tile[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (warp == 0) {
        tile[lane] = x[lane];
        __syncwarp();
        if (lane == 3) {
            __threadfence_block();
            set(&flag, 1);
        }
    } else {
        if (lane == 5) {
            await(&flag, 1);
            __threadfence_block();
        }
        __syncwarp();
        y[lane] = tile[31 - lane];
    }
}
LAUNCHER(flags_in_the_block, 1, 64)

__global__ void lock_in_the_block_kernel(const float* x, float* y, int n) {
    __shared__ int lock;
    __shared__ float sum;
    if (threadIdx.x == 0) lock = 0, sum = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(&lock, 0, 1) != 0) {
        }
        __threadfence_block();
        sum += x[threadIdx.x / 32];
        __threadfence_block();
        atomicExch(&lock, 0);
    }
    __syncthreads();
    if (threadIdx.x == 0) y[0] = sum;
}
LAUNCHER(lock_in_the_block, 1, 128)

__global__ void warps_lock_kernel(const float* x, float* y, int n) {
    __shared__ int lock;
    __shared__ float sum[32];
    int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) lock = 0;
    if (threadIdx.x < 32) sum[lane] = 0;
    __syncthreads();
    if (lane == 0) {
        while (atomicCAS(&lock, 0, 1) != 0) {
        }
        __threadfence_block();
    }
    __syncwarp();
    sum[31 - lane] += x[threadIdx.x];
    __syncwarp();
    if (lane == 0) {
        __threadfence_block();
        atomicExch(&lock, 0);
    }
    __syncthreads();
    if (threadIdx.x < 32) y[lane] = sum[lane];
}
LAUNCHER(warps_lock, 1, 128)

__global__ void barriers_made_twice_kernel(const float* x, float* y, int n) {
    __shared__ uint64_t full;
    __shared__ float tile[64];
    int i = threadIdx.x;
    for (int k = 0; k < 3; ++k) {
        if (i == 0) init(&full, 64);
        __syncthreads();
        tile[i] = x[k * 64 + i];
        arrive(&full);
        wait(&full, 0);
        y[k * 64 + i] = tile[63 - i];
        __syncthreads();
        if (i == 0) inval(&full);
        __syncthreads();
    }
}
LAUNCHER(barriers_made_twice, 1, 64)

// ---- blocks

__global__ void last_block_kernel(const float* x, float* y, int n) {
    __shared__ bool last;
    int i = threadIdx.x;
    y[64 + blockIdx.x * 64 + i] = x[i];
    __syncthreads();
    if (i == 0) {
        __threadfence();
        last = atomicInc(&words[0], gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[64 + b * 64 + (63 - i)];
    y[i] = sum;
}
LAUNCHER(last_block, 3, 64)

// Blocks of a warp: it meets before lane 0 counts, and hears of the count by a shuffle.
__global__ void last_warp_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    y[32 + blockIdx.x * 32 + i] = x[i] + blockIdx.x;
    __syncwarp();
    unsigned int before = 0;
    if (i == 0) {
        __threadfence();
        before = atomicInc(&words[0], gridDim.x - 1);
        __threadfence();
    }
    __syncwarp();
    if (__shfl_sync(~0u, before, 0) != gridDim.x - 1) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[32 + b * 32 + (31 - i)];
    y[i] = sum;
}
LAUNCHER(last_warp, 4, 32)

__global__ void each_lane_has_a_flag_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (blockIdx.x == 0) {
        y[i] = x[i];
        __threadfence();
        set(&words[i], 1);
    } else {
        await(&words[31 - i], 1);
        __threadfence();
        y[64 + i] = y[31 - i];
    }
}
LAUNCHER(each_lane_has_a_flag, 2, 32)

__global__ void thread_waits_for_its_block_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (blockIdx.x == 0) {
        y[i] = x[i];
        __syncthreads();
        if (i == 40) {
            __threadfence();
            set(&words[0], 1);
        }
    } else {
        if (i == 33) {
            await(&words[0], 1);
            __threadfence();
        }
        __syncthreads();
        y[64 + i] = y[63 - i];
    }
}
LAUNCHER(thread_waits_for_its_block, 2, 64)

// The flag goes up and down in turn, and each side waits for the other.
__global__ void ping_pong_kernel(const float* x, float* y, int n) {
    if (threadIdx.x) return;
    float sum = 0;
    for (int round = 0; round < 5; ++round) {
        if (blockIdx.x == 0) {
            await(&words[0], 0);
            __threadfence();
            y[10] = x[round];
            __threadfence();
            set(&words[0], 1);
        } else {
            await(&words[0], 1);
            __threadfence();
            sum += y[10];
            __nanosleep(20);
            __threadfence();
            set(&words[0], 0);
        }
    }
    if (blockIdx.x == 1) y[11] = sum;
}
LAUNCHER(ping_pong, 2, 32)

__global__ void released_and_acquired_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (blockIdx.x == 0) {
        y[i] = x[i];
        asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(&words[i]) : "memory");
    } else {
        unsigned int set = 0;
        while (!set) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(set) : "l"(&words[i]) : "memory");
        y[64 + i] = y[i];
    }
}
LAUNCHER(released_and_acquired, 2, 32)

// Blocks of a warp. The count orders by itself, and only shared memory tells the other lanes of it.
__device__ __forceinline__ unsigned int count_in_order(unsigned int* place) {
    unsigned int before;
    asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], 1;" : "=r"(before) : "l"(place) : "memory");
    return before;
}
__global__ void last_warp_by_one_atomic_kernel(const float* x, float* y, int n) {
    __shared__ unsigned int before;
    int i = threadIdx.x;
    y[64 + blockIdx.x * 32 + i] = x[i];
    __syncwarp();
    if (i == 0) before = count_in_order(&words[0]);
    __syncwarp();
    if (before != gridDim.x - 1) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[64 + b * 32 + (31 - i)];
    y[i] = sum;
}
LAUNCHER(last_warp_by_one_atomic, 3, 32)

__global__ void grid_barriers_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x, b = blockIdx.x;
    float v = x[b * 32 + i];
    for (int round = 1; round <= 3; ++round) {
        y[b * 32 + i] = v;
        __syncthreads();
        if (i == 0) {
            __threadfence();
            atomicAdd(&words[0], 1u);
            while (atomicAdd(&words[0], 0u) < 2 * round * gridDim.x - gridDim.x) {
            }
            __threadfence();
        }
        __syncthreads();
        v = y[((b + 1) % gridDim.x) * 32 + i] + 1;
        __syncthreads();
        if (i == 0) {
            __threadfence();
            atomicAdd(&words[0], 1u);
            while (atomicAdd(&words[0], 0u) < 2 * round * gridDim.x) {
            }
            __threadfence();
        }
        __syncthreads();
    }
    y[128 + b * 32 + i] = v;
}
LAUNCHER(grid_barriers, 4, 32)

// Flag and value in one word: no fence is needed.
__device__ unsigned long long sums[8];
__global__ void look_back_kernel(const float* x, float* y, int n) {
    if (threadIdx.x) return;
    unsigned int b = atomicAdd(&words[0], 1u);
    float sum = x[b];
    if (b > 0) {
        unsigned long long word;
        do {
            word = *reinterpret_cast<volatile unsigned long long*>(&sums[b - 1]);
        } while (!(word >> 32));
        sum += __uint_as_float(static_cast<unsigned int>(word));
    }
    atomicExch(&sums[b], 1ull << 32 | __float_as_uint(sum));
    y[b] = sum;
}
KATA_EXPORT void look_back(const float* x, float* y, int n, cudaStream_t stream) {
    static const unsigned long long zeros[8] = {};
    cudaMemcpyToSymbolAsync(sums, zeros, sizeof zeros, 0, cudaMemcpyHostToDevice, stream);
    cudaMemcpyToSymbolAsync(words, zeros, sizeof(unsigned int), 0, cudaMemcpyHostToDevice, stream);
    cudaMemsetAsync(y, 0, n * sizeof(float), stream);
    look_back_kernel<<<8, 32, 0, stream>>>(x, y, n);
}

__global__ void own_slot_kernel(const float* x, float* y, int n) {
    unsigned int slot = atomicAdd(&words[0], 1u);
    y[slot] = 1 + slot;
}
LAUNCHER(own_slot, 4, 64)

__global__ void chain_of_fences_kernel(const float* x, float* y, int n) {
    if (threadIdx.x) return;
    int b = blockIdx.x;
    float sum = x[b];
    if (b > 0) {
        await(&words[b - 1], 1);
        __threadfence();
        sum += y[b - 1];
    }
    y[b] = sum;
    __threadfence();
    set(&words[b], 1);
}
LAUNCHER(chain_of_fences, 6, 32)

// What block 0 wrote comes to block 2 by way of block 1.
__global__ void by_way_of_another_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (blockIdx.x == 0) {
        y[i] = x[i];
        __syncwarp();
        if (i == 0) {
            __threadfence();
            set(&words[0], 1);
        }
    } else if (blockIdx.x == 1) {
        if (i == 9) {
            await(&words[0], 1);
            __threadfence();
            set(&words[1], 1);
        }
    } else {
        if (i == 4) {
            await(&words[1], 1);
            __threadfence();
        }
        __syncwarp();
        y[64 + i] = y[31 - i];
    }
}
LAUNCHER(by_way_of_another, 3, 32)

// The block that counts last sets the counter back with a plain store, which no fence stands before: it has seen the
// others' counts. So has its next lane, after a barrier.
__global__ void last_block_sets_back_kernel(const float* x, float* y, int n) {
    __shared__ bool last;
    int i = threadIdx.x, b = blockIdx.x;
    y[32 + b * 32 + i] = x[i];
    __threadfence();
    __syncthreads();
    if (i == 0) last = atomicAdd(&words[0], 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    if (i == 1) words[0] = 0;
    __threadfence();
    float sum = 0;
    for (int other = 0; other < gridDim.x; ++other) sum += y[32 + other * 32 + i];
    y[i] = sum;
}
LAUNCHER(last_block_sets_back, 5, 32)
