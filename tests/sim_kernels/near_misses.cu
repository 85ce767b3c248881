// The neighbours of planted.cu: each looks like a hazard and is none, in whatever order blocks and warps run.
#include "kata.cuh"
#include <cuda/atomic>
#include <cuda_fp16.h>

#define LAUNCHER(name, grid, block)                                               \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        cudaMemsetAsync(y, 0, n * sizeof(float), stream);                         \
        name##_kernel<<<grid, block, 0, stream>>>(x, y, n);                       \
    }

__global__ void sum_with_atomic_kernel(const float* x, float* y, int n) {
    if (threadIdx.x < 2) atomicAdd(y, x[blockIdx.x]);
}
LAUNCHER(sum_with_atomic, 8, 32)

// Lanes that hit one bin elect a leader.
__global__ void counts_aggregated_kernel(const float* x, float* y, int n) {
    int bin = int(x[threadIdx.x]), lane = threadIdx.x % 32;
    unsigned same = __match_any_sync(0xffffffff, bin);
    if (lane == __ffs(same) - 1) atomicAdd(&y[bin], float(__popc(same)));
}
LAUNCHER(counts_aggregated, 2, 64)

__device__ unsigned int tickets[8];

__global__ void last_block_done_kernel(const float* x, float* y, int n) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        y[1 + blockIdx.x] = x[blockIdx.x];
        __threadfence();
        last = atomicInc(&tickets[0], gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last || threadIdx.x != 32) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[1 + b];
    y[0] = sum;
}
LAUNCHER(last_block_done, 6, 64)

// The same without a second fence, for what is stored and loaded strongly.
__global__ void last_block_done_volatile_kernel(const float* x, float* y, int n) {
    __shared__ bool last;
    volatile float* sums = y + 1;
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = x[blockIdx.x];
        __threadfence();
        last = atomicInc(&tickets[2], gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || threadIdx.x != 32) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += sums[b];
    y[0] = sum;
}
LAUNCHER(last_block_done_volatile, 6, 64)

// The atomic has both fences in it.
__global__ void last_block_done_acq_rel_kernel(const float* x, float* y, int n) {
    if (threadIdx.x != 0) return;
    y[1 + blockIdx.x] = x[blockIdx.x];
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(&tickets[3]), "r"(gridDim.x - 1)
                 : "memory");
    if (before != gridDim.x - 1) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[1 + b];
    y[0] = sum;
}
LAUNCHER(last_block_done_acq_rel, 6, 32)

// The same as the lesson of block_all_reduce writes it.
__device__ unsigned atomic_ref_tickets;
__global__ void last_block_done_atomic_ref_kernel(const float* x, float* y, int n) {
    if (threadIdx.x != 0) return;
    y[1 + blockIdx.x] = x[blockIdx.x];
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> count(atomic_ref_tickets);
    const bool last = count.fetch_add(1, cuda::std::memory_order_acq_rel) == gridDim.x - 1;
    if (!last) return;
    count.store(0, cuda::std::memory_order_relaxed);
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[1 + b];
    y[0] = sum;
}
LAUNCHER(last_block_done_atomic_ref, 6, 32)

// One thread fences for all, after a barrier.
__global__ void last_block_done_for_all_kernel(const float* x, float* y, int n) {
    __shared__ bool last;
    y[64 + blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicInc(&tickets[4], gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[64 + b * 64 + (threadIdx.x ^ 37)];
    y[threadIdx.x] = sum;
}
LAUNCHER(last_block_done_for_all, 3, 64)

// All threads write and fence, one of them takes the ticket.
__global__ void last_block_done_by_all_kernel(const float* x, float* y, int n) {
    __shared__ bool last;
    y[64 + blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&tickets[1], 1) % gridDim.x == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[64 + b * 32 + (threadIdx.x ^ 5)];
    y[threadIdx.x] = sum;
}
LAUNCHER(last_block_done_by_all, 4, 32)

__global__ void flag_after_its_data_kernel(const float* x, float* y, int n) {
    volatile float* flag = y + 1;
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        y[0] = x[1];
        __threadfence();
        *flag = 1;
    } else {
        while (*flag == 0) {
        }
        __threadfence();
        y[2] = y[0];
    }
}
LAUNCHER(flag_after_its_data, 2, 32)

__global__ void release_and_acquire_kernel(const float* x, float* y, int n) {
    int* flag = reinterpret_cast<int*>(y + 1);
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        y[0] = x[1];
        asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flag) : "memory");
    } else {
        int set = 0;
        while (!set) asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(set) : "l"(flag) : "memory");
        y[2] = y[0];
    }
}
LAUNCHER(release_and_acquire, 2, 32)

// Each block waits for the one before it: what the first wrote reaches the last through all of them.
__global__ void chain_of_blocks_kernel(const float* x, float* y, int n) {
    volatile float* flag = y + 128;
    int b = blockIdx.x;
    if (threadIdx.x != 0) return;
    float before = 0;
    if (b > 0) {
        while (flag[b - 1] == 0) {
        }
        __threadfence();
        before = y[b - 1];
    }
    y[b] = before + x[b] + (b > 2 ? y[0] : 0);
    __threadfence();
    flag[b] = 1;
}
LAUNCHER(chain_of_blocks, 6, 32)

__device__ int mutex;
__global__ void lock_of_blocks_kernel(const float* x, float* y, int n) {
    if (threadIdx.x % 32 != 0) return;
    while (atomicCAS(&mutex, 0, 1) != 0) {
    }
    __threadfence();
    y[0] += x[blockIdx.x];
    __threadfence();
    atomicExch(&mutex, 0);
}
LAUNCHER(lock_of_blocks, 4, 64)

// One counter for all blocks; its sense is the number of rounds.
__device__ unsigned int arrived;
__device__ __forceinline__ void grid_barrier() {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        unsigned int round = atomicAdd(&arrived, 1) / gridDim.x;
        while (*(volatile unsigned int*)&arrived < (round + 1) * gridDim.x) {
        }
        __threadfence();
    }
    __syncthreads();
}
__global__ void phases_with_grid_barrier_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x, b = blockIdx.x;
    y[b * 32 + i] = x[i];
    for (int phase = 0; phase < 3; ++phase) {
        grid_barrier();
        float other = y[(b + 1) % 4 * 32 + (i ^ 1)];
        grid_barrier();
        y[b * 32 + i] = other;
    }
}
LAUNCHER(phases_with_grid_barrier, 4, 32)

__global__ void first_kernel(const float* x, float* y) {
    y[blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x];
}
__global__ void second_kernel(float* y) {
    y[128 + blockIdx.x * 32 + threadIdx.x] = y[(3 - blockIdx.x) * 32 + 31 - threadIdx.x];
}
KATA_EXPORT void phases_in_two_kernels(const float* x, float* y, int n, cudaStream_t stream) {
    first_kernel<<<4, 32, 0, stream>>>(x, y);
    second_kernel<<<4, 32, 0, stream>>>(y);
    first_kernel<<<4, 32, 0, stream>>>(x, y);
}

__global__ void interleaved_elements_kernel(const float* x, float* y, int n) {
    for (int i = blockIdx.x; i < 128; i += gridDim.x)
        if (i % 32 == threadIdx.x) y[i] += x[i];
}
LAUNCHER(interleaved_elements, 3, 32)

__global__ void adjacent_bytes_kernel(const float* x, float* y, int n) {
    unsigned char* bytes = reinterpret_cast<unsigned char*>(y);
    bytes[threadIdx.x * gridDim.x + blockIdx.x] = (unsigned char)x[threadIdx.x];
}
LAUNCHER(adjacent_bytes, 4, 32)

__global__ void vectors_of_two_widths_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    float4 v = make_float4(x[i], x[i], x[i], x[i]);
    if (blockIdx.x == 0) reinterpret_cast<float4*>(y)[i] = v;
    if (blockIdx.x == 1 && i > 0) y[128 + i] = x[i];
    if (blockIdx.x == 2 && i < 4) reinterpret_cast<float2*>(y + 160)[i] = make_float2(v.x, v.y);
    if (blockIdx.x == 3 && i == 0) y[128] = v.x;
}
LAUNCHER(vectors_of_two_widths, 4, 32)

__global__ void largest_with_a_look_first_kernel(const float* x, float* y, int n) {
    int value = int(x[blockIdx.x * 32 + threadIdx.x]);
    int* largest = reinterpret_cast<int*>(y);
    if (value > *largest) atomicMax(largest, value);
}
LAUNCHER(largest_with_a_look_first, 4, 32)

__global__ void exchange_with_barrier_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    for (int k = 0; k < 3; ++k) {
        y[i] = x[i] + k;
        __syncthreads();
        y[64 + i] = y[63 - i];
        __syncthreads();
    }
}
LAUNCHER(exchange_with_barrier, 1, 64)

__global__ void exchange_in_a_warp_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
    __syncwarp();
    float other = y[i ^ 7];
    __syncwarp();
    y[i] = other;
}
LAUNCHER(exchange_in_a_warp, 2, 64)

__global__ void tree_with_barrier_kernel(const float* x, float* y, int n) {
    __shared__ float sum[128];
    int i = threadIdx.x;
    sum[i] = x[i];
    for (int half = 64; half > 0; half /= 2) {
        __syncthreads();
        if (i < half) sum[i] += sum[i + half];
    }
    if (i == 0) y[blockIdx.x] = sum[0];
}
LAUNCHER(tree_with_barrier, 2, 128)

__global__ void scan_in_two_buffers_kernel(const float* x, float* y, int n) {
    __shared__ float sum[2][64];
    int i = threadIdx.x, now = 0;
    sum[0][i] = x[i];
    for (int step = 1; step < 64; step *= 2) {
        __syncthreads();
        sum[1 - now][i] = sum[now][i] + (i >= step ? sum[now][i - step] : 0);
        now = 1 - now;
    }
    y[i] = sum[now][i];
}
LAUNCHER(scan_in_two_buffers, 1, 64)

__global__ void transpose_with_barrier_kernel(const float* x, float* y, int n) {
    __shared__ float tile[8][9];
    tile[threadIdx.y][threadIdx.x] = x[threadIdx.y * 8 + threadIdx.x];
    __syncthreads();
    y[threadIdx.y * 8 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
LAUNCHER(transpose_with_barrier, 1, dim3(8, 8))

// Two buffers need one barrier a step.
__global__ void double_buffer_pipeline_kernel(const float* x, float* y, int n) {
    __shared__ float tile[2][64];
    float sum = 0;
    int i = threadIdx.x;
    tile[0][i] = x[i];
    for (int k = 1; k <= 3; ++k) {
        __syncthreads();
        sum += tile[(k - 1) % 2][63 - i];
        if (k < 3) tile[k % 2][i] = x[64 * k + i];
    }
    y[i] = sum;
}
LAUNCHER(double_buffer_pipeline, 1, 64)

__global__ void barrier_after_a_ragged_loop_kernel(const float* x, float* y, int n) {
    __shared__ float sums[64];
    float sum = 0;
    for (int i = threadIdx.x; i < 96; i += blockDim.x) sum += x[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    y[threadIdx.x] = sums[63 - threadIdx.x];
}
LAUNCHER(barrier_after_a_ragged_loop, 1, 64)

__global__ void division_guarded_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x, d = int(x[i]);
    y[i] = d ? n / d : 0;
    if (d) y[i] += n % d;
}
LAUNCHER(division_guarded, 1, 32)

// Nobody waits for lanes that have left: a mask may name them in a vote and in a barrier of the warp.
__global__ void votes_after_some_left_kernel(const float* x, float* y, int n) {
    if (threadIdx.x % 3 == 1) return;
    unsigned large = __ballot_sync(0xffffffff, x[threadIdx.x] > 8);
    __syncwarp();
    y[threadIdx.x] = __popc(large);
}
LAUNCHER(votes_after_some_left, 1, 32)

// The shuffle of a half is made of PTX that names the warp's size by its own constant, WARP_SZ.
__global__ void halves_exchanged_kernel(const float* x, float* y, int n) {
    half mine = __float2half(x[threadIdx.x]);
    y[threadIdx.x] = __half2float(__shfl_xor_sync(0xffffffff, mine, 3));
}
LAUNCHER(halves_exchanged, 1, 64)
