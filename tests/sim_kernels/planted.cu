// One planted hazard in each kernel, of a technique of its own; a marker names the line where it must be reported.
// What many blocks or threads do wrong together must be found in whatever order they run.
#include "kata.cuh"

#define LAUNCHER(name, grid, block)                                               \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        cudaMemsetAsync(y, 0, n * sizeof(float), stream);                         \
        name##_kernel<<<grid, block, 0, stream>>>(x, y, n);                       \
    }

__global__ void sum_without_atomic_kernel(const float* x, float* y, int n) {
    if (threadIdx.x == 0) *y += x[blockIdx.x];  // sum_without_atomic
}
LAUNCHER(sum_without_atomic, 2, 32)

__global__ void counts_in_a_warp_kernel(const float* x, float* y, int n) {
    y[int(x[threadIdx.x])] += 1;  // counts_in_a_warp
}
LAUNCHER(counts_in_a_warp, 1, 32)

__device__ unsigned int tickets[8];

__global__ void partials_without_fence_kernel(const float* x, float* y, int n) {
    if (threadIdx.x != 0) return;
    y[1 + blockIdx.x] = x[blockIdx.x];
    if (atomicInc(&tickets[0], gridDim.x - 1) != gridDim.x - 1) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[1 + b];  // partials_without_fence
    y[0] = sum;
}
LAUNCHER(partials_without_fence, 6, 32)

__global__ void partials_fenced_for_the_block_kernel(const float* x, float* y, int n) {
    if (threadIdx.x != 0) return;
    y[1 + blockIdx.x] = x[blockIdx.x];
    __threadfence_block();
    if (atomicInc(&tickets[1], gridDim.x - 1) != gridDim.x - 1) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[1 + b];  // partials_fenced_for_the_block
    y[0] = sum;
}
LAUNCHER(partials_fenced_for_the_block, 6, 32)

// Handed over, but not received: what the count stands for may still be read from before.
__global__ void partials_not_acquired_kernel(const float* x, float* y, int n) {
    if (threadIdx.x != 0) return;
    y[1 + blockIdx.x] = x[blockIdx.x];
    __threadfence();
    if (atomicInc(&tickets[2], gridDim.x - 1) != gridDim.x - 1) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[1 + b];  // partials_not_acquired
    y[0] = sum;
}
LAUNCHER(partials_not_acquired, 6, 32)

// One thread fences for all, but the other warp has not come to it.
__global__ void partials_of_another_warp_kernel(const float* x, float* y, int n) {
    __shared__ bool last;
    y[64 + blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicInc(&tickets[3], gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += y[64 + b * 64 + threadIdx.x];  // partials_of_another_warp
    y[threadIdx.x] = sum;
}
LAUNCHER(partials_of_another_warp, 3, 64)

__global__ void flag_seen_without_a_fence_kernel(const float* x, float* y, int n) {
    volatile float* flag = y + 1;
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        y[0] = x[1];
        __threadfence();
        *flag = 1;
    } else {
        while (*flag == 0) {
        }
        y[2] = y[0];  // flag_seen_without_a_fence
    }
}
LAUNCHER(flag_seen_without_a_fence, 2, 32)

__global__ void flag_before_its_data_kernel(const float* x, float* y, int n) {
    volatile float* flag = y + 1;
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        __threadfence();
        *flag = 1;
        y[0] = x[1];
    } else {
        while (*flag == 0) {
        }
        __threadfence();
        y[2] = y[0];  // flag_before_its_data
    }
}
LAUNCHER(flag_before_its_data, 2, 32)

__global__ void stencil_in_place_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float left = 0;
    if (threadIdx.x == 0 && i > 0) left = y[i - 1];  // stencil_in_place
    __syncthreads();
    y[i] = left + x[i];
}
LAUNCHER(stencil_in_place, 4, 32)

__global__ void blocks_one_too_long_kernel(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i <= 64; i += blockDim.x) y[64 * blockIdx.x + i] = x[i];  // blocks_one_too_long
}
LAUNCHER(blocks_one_too_long, 2, 32)

__global__ void exchange_without_barrier_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    y[i] = x[i];
    y[64 + i] = y[63 - i];  // exchange_without_barrier
}
LAUNCHER(exchange_without_barrier, 1, 64)

__global__ void phases_without_grid_barrier_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x, b = blockIdx.x;
    y[b * 32 + i] = x[i];
    __syncthreads();
    y[128 + b * 32 + i] = y[(b + 1) % 4 * 32 + i];  // phases_without_grid_barrier
}
LAUNCHER(phases_without_grid_barrier, 4, 32)

// The same, of an output that nobody cleared.
KATA_EXPORT void phases_of_a_new_output(const float* x, float* y, int n, cudaStream_t stream) {
    phases_without_grid_barrier_kernel<<<4, 32, 0, stream>>>(x, y, n);
}

__global__ void reset_while_others_add_kernel(const float* x, float* y, int n) {
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) *y = 0;  // reset_while_others_add
    atomicAdd(y, x[blockIdx.x]);
}
LAUNCHER(reset_while_others_add, 4, 32)

__global__ void lock_opened_by_a_store_kernel(const float* x, float* y, int n) {
    if (threadIdx.x != 0) return;
    int* mutex = reinterpret_cast<int*>(y + 1);
    while (atomicCAS(mutex, 0, 1) != 0) {
    }
    __threadfence();
    y[0] += x[blockIdx.x];
    __threadfence();
    *mutex = 0;  // lock_opened_by_a_store
}
LAUNCHER(lock_opened_by_a_store, 4, 32)

__global__ void tree_without_barrier_kernel(const float* x, float* y, int n) {
    __shared__ float sum[128];
    int i = threadIdx.x;
    sum[i] = x[i];
    __syncthreads();
    for (int half = 64; half > 0; half /= 2)
        if (i < half) sum[i] += sum[i + half];  // tree_without_barrier
    if (i == 0) y[0] = sum[0];
}
LAUNCHER(tree_without_barrier, 1, 128)

__global__ void scan_in_one_buffer_kernel(const float* x, float* y, int n) {
    __shared__ float sum[64];
    int i = threadIdx.x;
    sum[i] = x[i];
    for (int step = 1; step < 64; step *= 2) {
        __syncthreads();
        if (i >= step) sum[i] += sum[i - step];  // scan_in_one_buffer
    }
    __syncthreads();
    y[i] = sum[i];
}
LAUNCHER(scan_in_one_buffer, 1, 64)

__global__ void transpose_without_barrier_kernel(const float* x, float* y, int n) {
    __shared__ float tile[8][9];
    tile[threadIdx.y][threadIdx.x] = x[threadIdx.y * 8 + threadIdx.x];
    y[threadIdx.y * 8 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];  // transpose_without_barrier
}
LAUNCHER(transpose_without_barrier, 1, dim3(8, 8))

__global__ void single_buffer_pipeline_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    float sum = 0;
    int i = threadIdx.x;
    tile[i] = x[i];
    for (int k = 1; k <= 3; ++k) {
        __syncthreads();
        sum += tile[63 - i];  // single_buffer_pipeline
        if (k < 3) tile[i] = x[64 * k + i];
    }
    y[i] = sum;
}
LAUNCHER(single_buffer_pipeline, 1, 64)

__global__ void barrier_in_a_ragged_loop_kernel(const float* x, float* y, int n) {
    float sum = 0;
    for (int i = threadIdx.x; i < 96; i += blockDim.x) {
        sum += x[i];
        __syncthreads();  // barrier_in_a_ragged_loop
    }
    y[threadIdx.x] = sum;
}
LAUNCHER(barrier_in_a_ragged_loop, 1, 64)

__global__ void vote_in_a_branch_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (x[i] > 4) y[i] = __ballot_sync(0xffffffff, x[i] > 8);  // vote_in_a_branch
    __syncthreads();
}
LAUNCHER(vote_in_a_branch, 1, 32)

__global__ void halo_not_loaded_kernel(const float* x, float* y, int n) {
    __shared__ float tile[66];
    int i = threadIdx.x;
    tile[i + 1] = x[i];
    if (i == 0) tile[0] = 0;
    __syncthreads();
    y[i] = tile[i] + tile[i + 2];  // halo_not_loaded
}
LAUNCHER(halo_not_loaded, 1, 64)

__global__ void divides_by_zero_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    y[i] = n / int(x[i]);  // divides_by_zero
}
LAUNCHER(divides_by_zero, 1, 32)

__global__ void remainder_by_zero_kernel(const float* x, float* y, int n) {
    unsigned int i = threadIdx.x;
    y[i] = i % (unsigned int)(n - 257);  // remainder_by_zero
}
LAUNCHER(remainder_by_zero, 1, 32)

__global__ void grid_stride_past_kernel(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 2 * gridDim.x * blockDim.x) {
        y[i] = x[i];
        y[i + gridDim.x * blockDim.x] = x[i];  // grid_stride_past
    }
}
LAUNCHER(grid_stride_past, 2, 32)
