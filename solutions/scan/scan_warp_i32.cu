// scan_warp_i32: y[w, i] = x[w, 0] + ... + x[w, i], the inclusive scan of each row of 32 integers
//
// Shapes     x: [warps, 32] i32, contiguous, 16-byte aligned base, y: [warps, 32] i32, any warps >= 0, sums fit 32 bits
// Technique  five steps, each adding the value of a lane 1, 2, 4, 8, 16 lower; a warp has several rows in flight
// New        over warp_reduce_sum_f32: a lane adds what a lower lane holds, and the lowest lanes have no lower lane
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;  // warps per block
constexpr int ROWS = 4;                     // rows per warp, all loaded before the first is scanned
constexpr int PER_BLOCK = WARPS * ROWS;     // rows per block
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");

// Lane i gets the sum over lanes 0..i. All 32 lanes must call it together.
__device__ __forceinline__ int warp_scan(int sum) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    // TODO(1): In five steps, each twice as far as the one before, add the value of a lower lane. The lowest lanes have
    //   no such lane. (~5 lines)
#pragma unroll
    for (int offset = 1; offset < WARP_SIZE; offset *= 2) {
        const int below = __shfl_up_sync(FULL_MASK, sum, offset);
        if (lane_id >= offset) sum += below;
    }
    // END TODO(1)
    return sum;
}

__global__ void __launch_bounds__(THREADS)
    scan_warp_i32_kernel(const int* __restrict__ x, int* __restrict__ y, int warps) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    // The first of this warp's rows. 64 bits: the rows that are counted, and warps * 32, may exceed 2^31 - 1.
    const int64_t first = static_cast<int64_t>(blockIdx.x) * PER_BLOCK + threadIdx.x / WARP_SIZE * ROWS;
    int x_rmem[ROWS];
    // TODO(2): global -> registers: lane i loads element i of each of the warp's ROWS rows, 0 where no such row is
    //   left. All loads come before the first scan. (~4 lines)
#pragma unroll
    for (int i = 0; i < ROWS; ++i) x_rmem[i] = first + i < warps ? x[(first + i) * WARP_SIZE + lane_id] : 0;
    // END TODO(2)
    // TODO(3): Store the scan of each row that exists. Every lane takes part in every scan. (~5 lines)
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        // The condition is the same in all lanes of the warp: the shuffles find all of them.
        if (first + i < warps) y[(first + i) * WARP_SIZE + lane_id] = warp_scan(x_rmem[i]);
    }
    // END TODO(3)
}

KATA_EXPORT void scan_warp_i32(const int* x, int* y, int warps, cudaStream_t stream) {
    if (warps == 0) return;  // a grid of no blocks is an invalid launch
    const int blocks = (warps - 1) / PER_BLOCK + 1;
    scan_warp_i32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, warps);
}
