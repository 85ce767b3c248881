// scan_block_coarse_i32: y[r, i] = x[r, 0] + ... + x[r, i], the inclusive scan of each row of up to 8192 integers
//
// Shapes     x: [rows, cols] i32, row-major, contiguous, 16-byte aligned bases, y: [rows, cols] i32, rows >= 1, 1 <=
//            cols <= 8192, sums fit 32 bits
// Technique  one block per row; a thread scans four elements in registers, a warp the sums of its lanes, then the sums
//            of its chunks; every warp scans the sums of all warps
// New        over scan_block_brent_i32: serial work first, then one level of shuffles per level of the machine, so one
//            barrier is left
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 512;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int VEC = 4;                    // consecutive elements of a lane
constexpr int CHUNK = WARP_SIZE * VEC;    // consecutive elements of a warp, 4 per lane
constexpr int CHUNKS = 4;                 // of a warp, one after the other
constexpr int PER_WARP = CHUNKS * CHUNK;  // consecutive elements of a warp
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(WARPS <= WARP_SIZE, "one warp scans the sums of all warps");

// Lane i gets the sum over lanes 0..i. All 32 lanes must call it together.
__device__ __forceinline__ int warp_scan(int sum) {
    const int lane_id = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int offset = 1; offset < WARP_SIZE; offset *= 2) {
        const int below = __shfl_up_sync(FULL_MASK, sum, offset);
        if (lane_id >= offset) sum += below;
    }
    return sum;
}

// Pack is the type of one access. Its elements divide cols: every row starts at a multiple of its size.
template <typename Pack>
__global__ void __launch_bounds__(THREADS)
    scan_block_coarse_i32_kernel(const int* __restrict__ x, int* __restrict__ y, int cols) {
    constexpr int PACK = sizeof(Pack) / sizeof(int);
    __shared__ int warp_sums_smem[WARPS];
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int64_t off = static_cast<int64_t>(blockIdx.x) * cols;  // of this block's row
    const int first = warp_id * PER_WARP + lane_id * VEC;         // this lane's column in the warp's first chunk
    alignas(Pack) int sums[CHUNKS][VEC];
    // TODO(1): global -> registers: the lane's VEC columns of each chunk, 0 past the end of the row. (~8 lines)
    // END TODO(1)
    // TODO(2): Make sums[c][j] the sum of the warp's elements up to this one, from the first of its first chunk on. A
    //   lane adds its own elements first, so that one warp_scan per chunk is enough. (~9 lines)
    // END TODO(2)
    int warp_before = 0;
    // TODO(3): Let warp_before be the sum of all warps below this one. The block has blockDim.x / WARP_SIZE warps.
    //   (~4 lines)
    // END TODO(3)
    // TODO(4): registers -> global, as they were loaded. (~8 lines)
    // END TODO(4)
}

KATA_EXPORT void scan_block_coarse_i32(const int* x, int* y, int rows, int cols, cudaStream_t stream) {
    const int threads = ((cols - 1) / PER_WARP + 1) * WARP_SIZE;
    // All rows start at a multiple of 16 bytes only if 4 divides cols.
    const auto kernel = cols % 4 == 0 ? scan_block_coarse_i32_kernel<int4> : scan_block_coarse_i32_kernel<int>;
    kernel<<<rows, threads, 0, stream>>>(x, y, cols);
}
