// Near misses: each looks like a hazard and is none.
#include "kata.cuh"
#include <cstdio>
#include <cuda_fp16.h>

#define LAUNCHER(name, grid, block, smem)                                         \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        name##_kernel<<<grid, block, smem, stream>>>(x, y, n);                    \
    }

__global__ void tail_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
LAUNCHER(tail, n / 256 + 1, 256, 0)

// The compiler moves loads of __ldg above the loop that checks for them.
__global__ void halves_of_nothing_kernel(const half* x, float* y, int columns) {
    for (int row = 0; row < 2; ++row) {
        float sum = 0;
        for (int k = threadIdx.x; k < columns; k += 32) sum = fmaf(2.0f, __half2float(__ldg(x + k)), sum);
        y[row * 32 + threadIdx.x] = sum;
    }
}
KATA_EXPORT void halves_of_nothing(const float* x, float* y, int n, cudaStream_t stream) {
    halves_of_nothing_kernel<<<1, 32, 0, stream>>>(reinterpret_cast<const half*>(x + n), y, 0);
}

__global__ void nonsense_not_chosen_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    float value;
    asm("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(i < 32 ? x + i : x + n + i));
    y[i] = i < 32 ? value : -1;
}
LAUNCHER(nonsense_not_chosen, 1, 64, 0)

// An asm statement loads what no thread has written, and throws it away.
__global__ void shared_nonsense_not_chosen_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    const int i = threadIdx.x;
    if (i < 32) tile[i] = x[i];
    __syncthreads();
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"((unsigned)__cvta_generic_to_shared(tile + i)));
    value = value * 2;
    y[i] = i < 32 ? value / 2 : -1;
}
LAUNCHER(shared_nonsense_not_chosen, 1, 64, 0)

// Scratch that the first call allocates and all calls use; it grows when it must.
__global__ void through_scratch_kernel(const float* x, float* scratch, float* y, int n) {
    int i = threadIdx.x;
    scratch[i] = x[i];
    __syncthreads();
    y[i] = scratch[i];
}
KATA_EXPORT void scratch_kept(const float* x, float* y, int n, cudaStream_t stream) {
    static float* scratch = nullptr;
    static int room = 0;
    if (room < n) {
        cudaFree(scratch);
        cudaMalloc(&scratch, n * sizeof(float));
        room = n;
    }
    through_scratch_kernel<<<1, 256, 0, stream>>>(x, scratch, y, n);
}

__global__ void reversed_kernel(const float* x, float* y, int n) {
    __shared__ float tile[256];
    int i = threadIdx.x;
    for (int k = 0; k < 3; ++k) {
        tile[i] = x[i];
        __syncthreads();
        y[i] = tile[255 - i];
        __syncthreads();
    }
}
LAUNCHER(reversed, 1, 256, 0)

__global__ void warp_synchronous_kernel(const float* x, float* y, int n) {
    __shared__ float tile[256];
    int i = threadIdx.x;
    tile[i] = x[i];
    __syncwarp();
    float other = tile[i ^ 1];
    __syncwarp();
    tile[i] = 2 * other;
    __syncwarp();
    y[i] = tile[i ^ 1] / 2;
}
LAUNCHER(warp_synchronous, 1, 256, 0)

__global__ void shared_atomics_kernel(const float* x, float* y, int n) {
    __shared__ int bins[32];
    int i = threadIdx.x;
    if (i < 32) bins[i] = 0;
    __syncthreads();
    atomicAdd(&bins[i % 32], 1);
    atomicMax(&bins[i % 32], 1);
    __syncthreads();
    y[i] = x[i] + bins[i % 32] - 8;
}
LAUNCHER(shared_atomics, 1, 256, 0)

__global__ void adjacent_bytes_kernel(const float* x, float* y, int n) {
    __shared__ unsigned char tile[256];
    int i = threadIdx.x;
    tile[i] = (unsigned char)i;
    __syncthreads();
    y[i] = x[i] + tile[i] - i;
}
LAUNCHER(adjacent_bytes, 1, 256, 0)

// Warps 0-3 produce, 4-7 consume, through a barrier with a count and one where producers only arrive.
__global__ void named_barriers_kernel(const float* x, float* y, int n) {
    __shared__ float tile[128];
    int i = threadIdx.x;
    if (i < 128) {
        tile[i] = x[i];
        asm volatile("bar.arrive 1, 256;" ::: "memory");
        asm volatile("bar.sync 2, 128;" ::: "memory");
        y[i] = tile[127 - i];
    } else {
        asm volatile("bar.sync 1, 256;" ::: "memory");
        y[i] = tile[i - 128];
    }
}
LAUNCHER(named_barriers, 1, 256, 0)

__global__ void divergent_meeting_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    float v = x[i];
    if (i % 3 == 0)
        v += 1;
    else
        v += 2;
    for (int k = 0; k < i % 5; ++k) v += 1;
    y[i] = __shfl_sync(0xffffffff, v, 7) + x[i] - v;
}
LAUNCHER(divergent_meeting, 1, 32, 0)

__global__ void half_masks_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    unsigned mask = i % 32 < 16 ? 0xffffu : 0xffff0000u;
    float v = x[i];
    if (i % 32 < 16)
        v += __shfl_xor_sync(mask, v, 1);
    else
        v += __shfl_xor_sync(mask, v, 2);
    y[i] = v;
}
LAUNCHER(half_masks, 1, 64, 0)

__global__ void partial_warp_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    float v = x[i];
    for (int m = 8; m; m /= 2) v += __shfl_down_sync(0xffffffff, v, m);
    if (i == 0) y[0] = v;
}
LAUNCHER(partial_warp, 1, 16, 0)

// A lock taken by one lane after the other of the same warp: needs progress of every lane.
__device__ int mutex;
__global__ void spin_lock_kernel(const float* x, volatile float* y, int n) {
    if (threadIdx.x == 0 && blockIdx.x == 0) y[1] = 0;
    bool done = false;
    while (!done) {
        if (atomicCAS(&mutex, 0, 1) == 0) {
            __threadfence();
            y[0] = y[0] + 1;
            __threadfence();
            atomicExch(&mutex, 0);
            done = true;
        }
    }
}
KATA_EXPORT void spin_lock(const float* x, float* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, 8, stream);
    spin_lock_kernel<<<4, 64, 0, stream>>>(x, y, n);
}

// Data in shared memory behind a lock, and behind a flag.
__global__ void shared_lock_kernel(const float* x, float* y, int n) {
    __shared__ int lock;
    __shared__ float sum;
    if (threadIdx.x == 0) lock = 0, sum = 0;
    __syncthreads();
    bool done = false;
    while (!done) {
        if (atomicCAS(&lock, 0, 1) == 0) {
            __threadfence_block();
            sum = sum + x[threadIdx.x];
            __threadfence_block();
            atomicExch(&lock, 0);
            done = true;
        }
    }
    __syncthreads();
    y[threadIdx.x] = sum;
}
LAUNCHER(shared_lock, 1, 64, 0)

__global__ void shared_flag_kernel(const float* x, float* y, int n) {
    __shared__ volatile int flag;
    __shared__ float tile[32];
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        tile[threadIdx.x] = x[threadIdx.x];
        __syncwarp();
        __threadfence_block();
        if (threadIdx.x == 0) flag = 1;
    } else {
        while (flag == 0) {
        }
        __threadfence_block();
        y[threadIdx.x - 32] = tile[threadIdx.x - 32];
    }
}
LAUNCHER(shared_flag, 1, 64, 0)

// Block 0 waits for all others: needs progress of blocks that are not finished.
__device__ int arrived;
__global__ void wait_for_blocks_kernel(const float* x, float* y, int n) {
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(&arrived, 1);
        while (atomicAdd(&arrived, 0) % gridDim.x != 0) {
        }
        y[blockIdx.x] = x[blockIdx.x];
    }
}
LAUNCHER(wait_for_blocks, 6, 32, 0)

__global__ void big_shared_kernel(const float* x, float* y, int n) {
    extern __shared__ float buffer[];
    int i = threadIdx.x;
    buffer[24000 + i] = x[i];
    __syncthreads();
    y[i] = buffer[24000 + (i ^ 33)];
}
KATA_EXPORT void big_shared(const float* x, float* y, int n, cudaStream_t stream) {
    cudaFuncSetAttribute(big_shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000);
    big_shared_kernel<<<1, 256, 100000, stream>>>(x, y, n);
}

__constant__ float factors[4] = {1, 2, 3, 4};
__device__ float table[4] = {10, 20, 30, 40};
__device__ __noinline__ float product(float a, float b) {
    return a * b + table[int(b) & 3];
}
__global__ void variables_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    float mine[8];
    for (int k = 0; k < 8; ++k) mine[k] = k;
    y[i] = product(x[i], factors[i & 3]) + mine[(i + n) & 7];
}
KATA_EXPORT void variables(const float* x, float* y, int n, cudaStream_t stream) {
    float host[4] = {5, 6, 7, 8};
    cudaMemcpyToSymbol(factors, host, sizeof host);
    variables_kernel<<<1, 32, 0, stream>>>(x, y, n);
}

__global__ void printing_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i == 3) printf("thread %d of %u: %5.2f %s %lld %c %%\n", i, blockDim.x, x[i], "text", 1234567890123ll, 'z');
    y[i] = x[i];
}
LAUNCHER(printing, 1, 32, 0)

__global__ void votes_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    unsigned ballot = __ballot_sync(0xffffffff, i & 1);
    unsigned same = __match_any_sync(0xffffffff, i / 8);
    unsigned sum = __reduce_add_sync(0xffffffff, i);
    int count = __syncthreads_count(i < 5), all = __syncthreads_and(i < 64), any = __syncthreads_or(i == 9);
    y[i] = (ballot == 0xaaaaaaaa) + 2 * (same == 0xffu << (i / 8 * 8 % 32)) + 4 * (sum == i / 32 * 1024 + 496) +
           8 * (count == 5) + 16 * (all == 1) + 32 * (any == 1) + 64 * __all_sync(0xffffffff, 1) +
           128 * (__any_sync(0xffffffff, 0) == 0);
}
LAUNCHER(votes, 1, 64, 0)

__global__ void copy_kernel(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x];
}
KATA_EXPORT void runtime(const float* x, float* y, int n, cudaStream_t stream) {
    int device = 7, multiprocessors = 0, blocks = 0, small = 0, block = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, tail_kernel, 256, 0);
    cudaOccupancyMaxPotentialBlockSize(&small, &block, tail_kernel);
    cudaEvent_t start;
    cudaEventCreate(&start);
    cudaEventRecord(start, stream);
    float host[4] = {
        float(multiprocessors), float(properties.major), float(blocks), float(properties.sharedMemPerBlockOptin)};
    float* copy = nullptr;
    cudaMallocAsync(&copy, sizeof host, stream);
    cudaMemcpyAsync(copy, host, sizeof host, cudaMemcpyHostToDevice, stream);
    copy_kernel<<<1, 4, 0, stream>>>(copy, y);
    cudaFreeAsync(copy, stream);
    cudaStreamSynchronize(stream);
}
