// One planted hazard in each kernel; a marker names the line where it must be reported.
#include "kata.cuh"
#include <cassert>
#include <cstdint>
#include <cuda_fp16.h>

#define LAUNCHER(name, grid, block, smem)                                         \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        name##_kernel<<<grid, block, smem, stream>>>(x, y, n);                    \
    }

__global__ void write_past_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = x[0];  // write_past
}
LAUNCHER(write_past, n / 256 + 1, 256, 0)

__global__ void read_past_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i + 1];  // read_past
}
LAUNCHER(read_past, (n + 255) / 256, 256, 0)

__global__ void read_before_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i - 3];  // read_before
}
LAUNCHER(read_before, 1, 32, 0)

__global__ void vector_past_kernel(const float* x, float* y, int n) {
    int i = 4 * threadIdx.x;
    if (i < n) reinterpret_cast<float4*>(y + i)[0] = reinterpret_cast<const float4*>(x)[0];  // vector_past
}
LAUNCHER(vector_past, 1, 256, 0)

__global__ void null_pointer_kernel(const float* x, float* y, int n) {
    if (n > 1000000) y = nullptr;
    y[threadIdx.x] = x[0];  // null_pointer
}
KATA_EXPORT void null_pointer(const float* x, float* y, int n, cudaStream_t stream) {
    null_pointer_kernel<<<1, 32, 0, stream>>>(x, nullptr, n);
}

__device__ __forceinline__ float fetch(const float* x, int i) {
    return __ldg(x + i);
}

__global__ void inlined_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    y[i] = fetch(x, 0) + __ldg(x + i + n);  // inlined
}
LAUNCHER(inlined, 1, 32, 0)

// The compiler moves no load of its own, so this one is the kernel's, though nothing is stored of it.
__global__ void value_not_used_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    int i = threadIdx.x;
    float value = 0;
    if (i <= n) value = x[i];  // value_not_used
    value += __shfl_xor_sync(~0u, value, 0);
    if (i < n) y[i] = value;
}
LAUNCHER(value_not_used, 1, (n + 63) / 32 * 32, 0)

__global__ void misaligned_global_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    float4 v = *reinterpret_cast<const float4*>(x + i);  // misaligned_global
    y[i] = v.x + v.w;
}
LAUNCHER(misaligned_global, 1, 8, 0)

__global__ void misaligned_shared_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];
    tile[i + 32] = x[i];
    __syncthreads();
    float2 v = *reinterpret_cast<float2*>(tile + i);  // misaligned_shared
    y[i] = v.x + v.y;
}
LAUNCHER(misaligned_shared, 1, 32, 0)

__global__ void shared_past_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    tile[i + 1] = x[i];  // shared_past
    __syncthreads();
    y[i] = tile[i];
}
LAUNCHER(shared_past, 1, 32, 0)

__global__ void dynamic_past_kernel(const float* x, float* y, int n) {
    extern __shared__ float buffer[];
    int i = threadIdx.x;
    buffer[i] = x[i];  // dynamic_past
    __syncthreads();
    y[i] = buffer[31 - i];
}
LAUNCHER(dynamic_past, 1, 32, 64)

__global__ void local_past_kernel(const float* x, float* y, int n) {
    float mine[8];
    for (int k = 0; k < 8; ++k) mine[k] = x[k];
    y[threadIdx.x] = mine[n % 100];  // local_past
}
LAUNCHER(local_past, 1, 32, 0)

__global__ void writes_input_kernel(float* x, float* y, int n) {
    int i = threadIdx.x;
    y[i] = x[i];
    x[i] = 0;  // writes_input
}
KATA_EXPORT void writes_input(float* x, float* y, int n, cudaStream_t stream) {
    writes_input_kernel<<<1, 32, 0, stream>>>(x, y, n);
}
KATA_EXPORT void memsets_input(float* x, float* y, int n, cudaStream_t stream) {
    cudaMemsetAsync(x, 0, 4, stream);
}

__global__ void uninitialised_output_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    y[i] += x[i];  // uninitialised_output
}
LAUNCHER(uninitialised_output, 1, 32, 0)

__global__ void uninitialised_atomic_kernel(const float* x, float* y, int n) {
    atomicAdd(y, x[threadIdx.x]);  // uninitialised_atomic
}
LAUNCHER(uninitialised_atomic, 1, 32, 0)

__global__ void uninitialised_shared_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    if (i < 32) tile[i] = x[i];
    __syncthreads();
    y[i] = tile[i];  // uninitialised_shared
}
LAUNCHER(uninitialised_shared, 1, 64, 0)

// ---- a whole warp reads a row of elements of some width, of which one is unwritten, or one element

#define ROW_UNWRITTEN(name, type, value)                             \
    __global__ void name##_kernel(const float* x, float* y, int n) { \
        __shared__ type tile[32];                                    \
        int i = threadIdx.x;                                         \
        if (i != 21) tile[i] = type{};                               \
        __syncthreads();                                             \
        const type v = tile[i];                                      \
        y[i] = value;                                                \
    }                                                                \
    LAUNCHER(name, 1, 32, 0)

ROW_UNWRITTEN(row_unwritten_1, uint8_t, v)                     // row_unwritten_1
ROW_UNWRITTEN(row_unwritten_2, uint16_t, v)                    // row_unwritten_2
ROW_UNWRITTEN(row_unwritten_4, float, v)                       // row_unwritten_4
ROW_UNWRITTEN(row_unwritten_8, uint2, v.x ^ v.y)               // row_unwritten_8
ROW_UNWRITTEN(row_unwritten_16, uint4, v.x ^ v.y ^ v.z ^ v.w)  // row_unwritten_16

__global__ void same_unwritten_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];
    __syncthreads();
    y[i] = tile[n - 220];  // same_unwritten
}
LAUNCHER(same_unwritten, 1, 32, 0)

__global__ void row_past_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    y[i] = x[n - 31 + i];  // row_past
}
LAUNCHER(row_past, 1, 32, 0)

__global__ void row_written_past_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    y[n - 31 + i] = x[i];  // row_written_past
}
LAUNCHER(row_written_past, 1, 32, 0)

__global__ void same_past_kernel(const float* x, float* y, int n) {
    y[threadIdx.x] = x[n];  // same_past
}
LAUNCHER(same_past, 1, 32, 0)

__global__ void row_misaligned_kernel(const float* x, float* y, int n) {
    float2 v = reinterpret_cast<const float2*>(x + 1)[threadIdx.x];  // row_misaligned
    y[threadIdx.x] = v.x + v.y;
}
LAUNCHER(row_misaligned, 1, 32, 0)

__global__ void uninitialised_malloc_kernel(const float* x, float* y, int n) {
    y[threadIdx.x] = x[threadIdx.x];  // uninitialised_malloc
}
KATA_EXPORT void uninitialised_malloc(const float* x, float* y, int n, cudaStream_t stream) {
    float* scratch = nullptr;
    cudaMalloc(&scratch, 128);
    uninitialised_malloc_kernel<<<1, 32, 0, stream>>>(scratch, y, n);
    cudaFree(scratch);
}
__global__ void malloc_past_kernel(float* x) {
    x[threadIdx.x] = 0;  // malloc_past
}
KATA_EXPORT void malloc_past(const float* x, float* y, int n, cudaStream_t stream) {
    float* scratch = nullptr;
    cudaMalloc(&scratch, 128);
    malloc_past_kernel<<<1, 64, 0, stream>>>(scratch);
    cudaFree(scratch);
}
KATA_EXPORT void use_after_free(const float* x, float* y, int n, cudaStream_t stream) {
    float* scratch = nullptr;
    cudaMalloc(&scratch, 256);
    cudaFree(scratch);
    malloc_past_kernel<<<1, 64, 0, stream>>>(scratch);
}

__global__ void race_missing_barrier_kernel(const float* x, float* y, int n) {
    __shared__ float tile[256];
    int i = threadIdx.x;
    tile[i] = x[i];        // race_missing_barrier_write
    y[i] = tile[255 - i];  // race_missing_barrier
}
LAUNCHER(race_missing_barrier, 1, 256, 0)

__global__ void race_second_barrier_kernel(const float* x, float* y, int n) {
    __shared__ float tile[256];
    int i = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 2; ++k) {
        tile[i] = x[i] + k;  // race_second_barrier_write
        __syncthreads();
        sum += tile[255 - i];  // race_second_barrier
    }
    y[i] = sum;
}
LAUNCHER(race_second_barrier, 1, 256, 0)

__global__ void race_same_value_kernel(const float* x, float* y, int n) {
    __shared__ int flag;
    flag = n;  // race_same_value
    __syncthreads();
    y[threadIdx.x] = flag;
}
LAUNCHER(race_same_value, 1, 64, 0)

__global__ void race_in_warp_kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int i = threadIdx.x;
    tile[i] = x[i];
    y[i] = tile[i ^ 1];  // race_in_warp
}
LAUNCHER(race_in_warp, 1, 32, 0)

__global__ void race_atomic_plain_kernel(const float* x, float* y, int n) {
    __shared__ int bins[32];
    int i = threadIdx.x;
    if (i < 32) bins[i] = 0;
    __syncthreads();
    atomicAdd(&bins[i % 32], 1);
    if (i < 32) y[i] = bins[i];  // race_atomic_plain
}
LAUNCHER(race_atomic_plain, 1, 256, 0)

__global__ void race_bytes_kernel(const float* x, float* y, int n) {
    __shared__ unsigned char tile[256];
    int i = threadIdx.x;
    tile[i / 2] = (unsigned char)n;  // race_bytes
    __syncthreads();
    y[i] = tile[i / 2];
}
LAUNCHER(race_bytes, 1, 64, 0)

// The flag alone orders nothing: no fence.
__global__ void race_flag_kernel(const float* x, float* y, int n) {
    __shared__ volatile int flag;
    __shared__ float tile[32];
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        tile[threadIdx.x] = x[threadIdx.x];
        __syncwarp();
        if (threadIdx.x == 0) flag = 1;
    } else {
        while (flag == 0) {
        }
        y[threadIdx.x - 32] = tile[threadIdx.x - 32];  // race_flag
    }
}
LAUNCHER(race_flag, 1, 64, 0)

__global__ void deadlock_exit_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];
    if (i >= 32) return;
    __syncthreads();  // deadlock_exit
    y[i] = tile[i + 32];
}
LAUNCHER(deadlock_exit, 1, 64, 0)

__global__ void deadlock_half_warp_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i % 2 == 0) {
        y[i] = x[i];
        __syncthreads();  // deadlock_half_warp
        y[i + 1] = x[i];
    }
}
LAUNCHER(deadlock_half_warp, 1, 64, 0)

__global__ void divergent_barrier_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < 32) {
        y[i] = x[i];
        __syncthreads();  // divergent_barrier_a
        y[i] += 1;
    } else {
        y[i] = x[i] * 2;
        __syncthreads();  // divergent_barrier_b
        y[i] -= 1;
    }
}
LAUNCHER(divergent_barrier, 1, 64, 0)

// A thread more comes to the second barrier of one branch than there is one for.
__global__ void divergent_and_stuck_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < 32) {
        __syncthreads();
        y[i] = x[i];
    } else {
        __syncthreads();
        y[i] = x[i] + 1;
        __syncthreads();  // divergent_and_stuck
    }
}
LAUNCHER(divergent_and_stuck, 1, 64, 0)

// As the compiler moves loads: nothing forbids it, since no thread writes what they read.
template <class T>
__device__ T load_early(const T* place);
template <>
__device__ __forceinline__ float load_early(const float* place) {
    float value;
    asm("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(place));  // moved_above_its_check
    return value;
}
template <>
__device__ __forceinline__ float2 load_early(const float2* place) {
    float2 value;
    asm("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "l"(place));  // moved_and_misaligned
    return value;
}
__global__ void moved_above_its_check_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    float value = load_early(x + i + n - 16);
    float more = 2 * value + 1;
    if (i <= 16) y[i] = more;  // moved_above_its_check_use
}
LAUNCHER(moved_above_its_check, 1, 32, 0)

__global__ void chooses_nonsense_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    float value = load_early(x + i + n - 16);
    int place = value > 3 ? 1 : 0;
    y[i + 32 * place] = 1;  // chooses_nonsense_use
}
LAUNCHER(chooses_nonsense, 1, 32, 0)

__global__ void moved_and_misaligned_kernel(const float* x, float* y, int n) {
    float2 value = load_early(reinterpret_cast<const float2*>(x + 1));
    y[threadIdx.x] = value.y;  // moved_and_misaligned_use
}
LAUNCHER(moved_and_misaligned, 1, 32, 0)

__global__ void shuffle_exited_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    float v = x[i];
    if (i >= 20) return;
    y[i] = __shfl_xor_sync(0xffffffff, v, 1);  // shuffle_exited
}
LAUNCHER(shuffle_exited, 1, 32, 0)

__global__ void shuffle_unnamed_kernel(const float* x, float* y, int n) {
    y[threadIdx.x] = __shfl_xor_sync(0xffff, x[threadIdx.x], 1);  // shuffle_unnamed
}
LAUNCHER(shuffle_unnamed, 1, 32, 0)

__global__ void shuffle_never_kernel(const float* x, float* y, int n) {
    int i = threadIdx.x;
    float v = x[i];
    if (i < 16) v = __shfl_xor_sync(0xffffffff, v, 1);  // shuffle_never
    __syncthreads();
    y[i] = v;
}
LAUNCHER(shuffle_never, 1, 32, 0)

__global__ void named_barrier_kernel(const float* x, float* y, int n) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");  // named_barrier
    y[threadIdx.x] = x[threadIdx.x];
}
LAUNCHER(named_barrier, 1, 64, 0)

__global__ void trap_kernel(const float* x, float* y, int n) {
    if (threadIdx.x == 5) __trap();  // trap
    y[threadIdx.x] = x[threadIdx.x];
}
LAUNCHER(trap, 1, 32, 0)

__global__ void shared_nonsense_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    const int i = threadIdx.x;
    if (i < 32) tile[i] = x[i];
    __syncthreads();
    const unsigned at = (unsigned)__cvta_generic_to_shared(tile + i);
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(at));  // shared_nonsense
    value = value * 2 + 1;
    y[i] = i < 33 ? value : -1;  // shared_nonsense_use
}
LAUNCHER(shared_nonsense, 1, 64, 0)

__global__ void breakpoint_kernel(const float* x, float* y, int n) {
    if (threadIdx.x == 5) __brkpt();  // breakpoint
    y[threadIdx.x] = x[threadIdx.x];
}
LAUNCHER(breakpoint, 1, 32, 0)

__global__ void assert_kernel(const float* x, float* y, int n) {
    assert(threadIdx.x < 7);  // assert
    y[threadIdx.x] = x[threadIdx.x];
}
KATA_EXPORT void assert_fails(const float* x, float* y, int n, cudaStream_t stream) {
    assert_kernel<<<1, 32, 0, stream>>>(x, y, n);
}

__global__ void endless_kernel(const float* x, volatile float* y, int n) {
    y[0] = 0;
    while (y[0] == 0) {
    }  // endless
}
LAUNCHER(endless, 1, 32, 0)

__global__ void nothing_kernel(const float* x, float* y, int n) {
    y[threadIdx.x] = x[threadIdx.x];
}
KATA_EXPORT void too_many_threads(const float* x, float* y, int n, cudaStream_t stream) {
    nothing_kernel<<<1, 2000, 0, stream>>>(x, y, n);
}
KATA_EXPORT void empty_grid(const float* x, float* y, int n, cudaStream_t stream) {
    nothing_kernel<<<0, 32, 0, stream>>>(x, y, n);
}
KATA_EXPORT void too_much_shared(const float* x, float* y, int n, cudaStream_t stream) {
    nothing_kernel<<<1, 32, 60000, stream>>>(x, y, n);
}
KATA_EXPORT void far_too_much_shared(const float* x, float* y, int n, cudaStream_t stream) {
    cudaFuncSetAttribute(nothing_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 300000);
    nothing_kernel<<<1, 32, 300000, stream>>>(x, y, n);
}
__global__ void __launch_bounds__(64) bounded_kernel(const float* x, float* y, int n) {
    y[threadIdx.x] = x[0];
}
LAUNCHER(bounded, 1, 128, 0)
KATA_EXPORT void raised_for_another(const float* x, float* y, int n, cudaStream_t stream) {
    cudaFuncSetAttribute(bounded_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000);
    nothing_kernel<<<1, 32, 60000, stream>>>(x, y, n);
}

__global__ void unsupported_kernel(const float* x, float* y, int n) {
    int r;
    asm volatile("vshl.u32.u32.u32.sat.clamp %0, %1, %1;" : "=r"(r) : "r"(n));  // unsupported
    y[threadIdx.x] = r;
}
LAUNCHER(unsupported, 1, 32, 0)

__global__ void recursion_kernel(const float* x, float* y, int n);
__device__ __noinline__ float deeper(const float* x, int n) {
    return n <= 0 ? 0.0f : x[n] + deeper(x, n - 1) * deeper(x, n - 2);  // recursion
}
__global__ void recursion_kernel(const float* x, float* y, int n) {
    y[0] = deeper(x, n - 1);
}
LAUNCHER(recursion, 1, 32, 0)

KATA_EXPORT void copy_past(const float* x, float* y, int n, cudaStream_t stream) {
    cudaMemcpyAsync(y, x, 4 * (n + 1), cudaMemcpyDeviceToDevice, stream);
}
KATA_EXPORT void host_dereference(const float* x, float* y, int n, cudaStream_t stream) {
    y[0] = x[0];
}
