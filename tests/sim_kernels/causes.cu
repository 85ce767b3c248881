// Kernels that make a nan or an infinity, and that use what nothing has set: what a wrong answer is traced back to.
#include "kata.cuh"
#include <cuda_fp16.h>

#define LAUNCHER(name, grid, block)                                               \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        name##_kernel<<<grid, block, 0, stream>>>(x, y, n);                       \
    }

// ---- x is 0, 1, ... 63; n is 64

__global__ void difference_of_infinities_kernel(const float* x, float* y, int n) {
    const float max = x[threadIdx.x] > 60.0f ? x[threadIdx.x] : -INFINITY;
    const float shifted = (x[threadIdx.x] < 3.0f ? -INFINITY : x[threadIdx.x]) - max;  // difference_of_infinities
    y[blockIdx.x * 32 + threadIdx.x] = 2.0f * shifted;
}
LAUNCHER(difference_of_infinities, 2, 32)

// The same of sums of a product, all 0: lane 3 has a maximum, and the others of its row do not know it.
__global__ void maximum_of_one_lane_kernel(const float* x, float* y, int n) {
    float d[4] = {};
    const unsigned zero = 0;
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4}, {%4}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(zero));
    const float max = threadIdx.x % 4 == 3 ? d[0] + 1.0f : -INFINITY;
    y[threadIdx.x] = x[threadIdx.x] * -INFINITY - max;  // maximum_of_one_lane
}
LAUNCHER(maximum_of_one_lane, 1, 32)

__global__ void overflow_kernel(const float* x, float* y, int n) {
    const float large = exp2f(x[threadIdx.x] * 4.0f);  // overflow
    y[threadIdx.x] = large / large;                    // quotient
}
LAUNCHER(overflow, 1, 64)

__global__ void too_large_for_a_half_kernel(const float* x, float* y, int n) {
    const __half2 both = __floats2half2_rn(x[threadIdx.x], x[threadIdx.x] * 2000.0f);  // too_large_for_a_half
    y[threadIdx.x] = __low2float(both) + __high2float(both);
}
LAUNCHER(too_large_for_a_half, 1, 64)

__global__ void product_in_half_kernel(const float* x, float* y, int n) {
    unsigned a[4], b[2], d[2] = {0, 0};
    const __half2 value = __float2half2_rn(x[63] * 4.0f);
    for (unsigned& each : a) each = reinterpret_cast<const unsigned&>(value);
    for (unsigned& each : b) each = reinterpret_cast<const unsigned&>(value);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));  // product_in_half
    y[threadIdx.x] = __low2float(reinterpret_cast<const __half2&>(d[0]));
}
LAUNCHER(product_in_half, 1, 32)

__global__ void passed_on_kernel(const float* x, float* y, int n) {
    y[threadIdx.x] = fmaf(x[threadIdx.x], 2.0f, threadIdx.x == 5 ? INFINITY : 0.0f);
}
LAUNCHER(passed_on, 1, 64)

// ---- sums that nothing sets

__global__ void unset_sum_kernel(const float* x, float* y, int n) {
    float sum;
    for (int i = threadIdx.x; i < n; i += 32) sum += x[i];  // unset_sum
    y[threadIdx.x] = sum;                                   // unset_sum_stored
}
LAUNCHER(unset_sum, 1, 32)

__global__ void unset_fragment_kernel(const float* x, float* y, int n) {
    float d[4];
    for (int k = 0; k < n; ++k) {
        const unsigned a = __float_as_uint(x[k]);
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4}, {%4}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a));
    }
    for (int i = 0; i < 4; ++i) y[i] = d[i];
}
LAUNCHER(unset_fragment, 1, 32)

// Set and read under the same condition, and set in the first round.
__global__ void set_under_a_condition_kernel(const float* x, float* y, int n) {
    float kept[2], sum;
    for (int i = 0; i < 2; ++i)
        if (threadIdx.x < n) kept[i] = x[threadIdx.x + i];
    __syncthreads();
    for (int i = 0; i < n; ++i) sum = i == 0 ? x[0] : sum + x[i];
    for (int i = 0; i < 2; ++i)
        if (threadIdx.x < n) y[threadIdx.x] = kept[i] + sum;
}
LAUNCHER(set_under_a_condition, 1, 32)

// ---- lanes of a warp that exchange values by volatile

template <bool MEETS>
__device__ __forceinline__ void exchange(const float* x, float* y) {
    __shared__ float tile[64];
    const int i = threadIdx.x;
    volatile float* place = tile + i;
    tile[i] = x[i];
    __syncthreads();
    if (i >= 32) return;
    const float other = place[16];  // volatile's read
    if (MEETS) __syncwarp();
    place[0] = other;  // volatile's write
    y[i] = other;
}
__global__ void volatile_in_no_order_kernel(const float* x, float* y, int n) {
    exchange<false>(x, y);
}
LAUNCHER(volatile_in_no_order, 1, 64)
__global__ void volatile_and_meeting_kernel(const float* x, float* y, int n) {
    exchange<true>(x, y);
}
LAUNCHER(volatile_and_meeting, 1, 64)
// A warp waits for the other one.
__global__ void volatile_between_warps_kernel(const float* x, float* y, int n) {
    __shared__ int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    volatile int* place = &flag;
    if (threadIdx.x == 32) *place = 1;
    if (threadIdx.x == 0)
        while (*place == 0) {
        }
    y[threadIdx.x] = x[threadIdx.x];
}
LAUNCHER(volatile_between_warps, 1, 64)
