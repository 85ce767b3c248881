// scan_three_kernels_i32: y[i] = x[0] + ... + x[i], the inclusive scan of any number of integers
//
// Shapes     x: [n] i32, contiguous, 16-byte aligned base, y: [n] i32, 16-byte aligned base, any n >= 0, sums fit 32
//            bits
// Technique  three launches: the sum of each tile of 4096; a scan of these sums by one block; then each tile again,
//            from the sum of all tiles before it on
// New        over scan_block_coarse_i32: more elements than a block holds; the end of a launch is the barrier of the
//            grid
// Bound      memory bandwidth: x is read twice
#include "kata.cuh"
#include <cstddef>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int VEC = 4;                    // consecutive elements of a lane
constexpr int CHUNK = WARP_SIZE * VEC;    // consecutive elements of a warp, VEC per lane
constexpr int CHUNKS = 4;                 // of a warp, one after the other
constexpr int PER_WARP = CHUNKS * CHUNK;  // consecutive elements of a warp
constexpr int TILE = WARPS * PER_WARP;    // elements of a block
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp scans the sums of all warps");
constexpr int SUMS_THREADS = 1024;  // of the one block that scans the tiles' sums
constexpr int SUMS_WARPS = SUMS_THREADS / WARP_SIZE;
static_assert(SUMS_WARPS == WARP_SIZE, "one warp scans the sums of all warps, one in each lane");

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

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ int warp_reduce_sum(int sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// Where the calling lane's elements of its warp's first chunk begin in the tile.
__device__ __forceinline__ int lane_first() {
    return threadIdx.x / WARP_SIZE * PER_WARP + threadIdx.x % WARP_SIZE * VEC;
}

// global -> registers: the lane's elements of a tile of which the first `left` exist; 0 past them.
__device__ __forceinline__ void load_tile(int (&to_rmem)[CHUNKS][VEC], const int* x_tile, int left) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const int at = lane_first() + c * CHUNK;
        if (at + VEC <= left) {
            const int4 x4 = *reinterpret_cast<const int4*>(x_tile + at);
            to_rmem[c][0] = x4.x, to_rmem[c][1] = x4.y, to_rmem[c][2] = x4.z, to_rmem[c][3] = x4.w;
        } else {
#pragma unroll
            for (int j = 0; j < VEC; ++j) to_rmem[c][j] = at + j < left ? x_tile[at + j] : 0;
        }
    }
}

// registers -> global: what load_tile loads, each plus `before`.
__device__ __forceinline__ void store_tile(int* y_tile, const int (&from_rmem)[CHUNKS][VEC], int before, int left) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const int at = lane_first() + c * CHUNK;
        const int* sums = from_rmem[c];
        if (at + VEC <= left) {
            *reinterpret_cast<int4*>(y_tile + at) =
                make_int4(before + sums[0], before + sums[1], before + sums[2], before + sums[3]);
        } else {
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                if (at + j < left) y_tile[at + j] = before + sums[j];
            }
        }
    }
}

// Makes sums[c][j] the sum over the tile's elements up to this one. Returns the tile's sum, in every thread. All
// threads must call it together, once.
__device__ __forceinline__ int scan_tile(int (&sums)[CHUNKS][VEC]) {
    __shared__ int warp_sums_smem[WARPS];
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    int carry = 0;  // the sum of the warp's chunks so far
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
        for (int j = 1; j < VEC; ++j) sums[c][j] += sums[c][j - 1];
        const int end = warp_scan(sums[c][VEC - 1]);
        const int before = carry + end - sums[c][VEC - 1];  // the sum of all that precedes the lane's elements
#pragma unroll
        for (int j = 0; j < VEC; ++j) sums[c][j] += before;
        carry += __shfl_sync(FULL_MASK, end, WARP_SIZE - 1);
    }
    if (lane_id == 0) warp_sums_smem[warp_id] = carry;
    __syncthreads();  // every warp reads what all warps wrote
    const int warp_ends = warp_scan(lane_id < WARPS ? warp_sums_smem[lane_id] : 0);
    const int warp_before = __shfl_sync(FULL_MASK, warp_ends, warp_id) - carry;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
        for (int j = 0; j < VEC; ++j) sums[c][j] += warp_before;
    return __shfl_sync(FULL_MASK, warp_ends, WARPS - 1);
}

// tile_sums[tile] = the sum of the tile's elements. One block per tile.
__global__ void __launch_bounds__(THREADS)
    sum_tiles_kernel(const int* __restrict__ x, int* __restrict__ tile_sums, int n) {
    __shared__ int warp_sums_smem[WARPS];
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int first = blockIdx.x * TILE;
    int x_rmem[CHUNKS][VEC];
    load_tile(x_rmem, x + first, n - first);
    // TODO(1): Add up the tile: threads, then warps, then the block. One thread stores the sum. (~9 lines)
    int sum = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
        for (int j = 0; j < VEC; ++j) sum += x_rmem[c][j];
    }
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) warp_sums_smem[warp_id] = sum;
    __syncthreads();  // the first warp reads what all warps wrote
    if (warp_id == 0) {
        sum = warp_reduce_sum(lane_id < WARPS ? warp_sums_smem[lane_id] : 0);
        if (lane_id == 0) tile_sums[blockIdx.x] = sum;
    }
    // END TODO(1)
}

// One block: tile_sums[tile] becomes the sum of all tiles before it.
__global__ void __launch_bounds__(SUMS_THREADS) scan_sums_kernel(int* tile_sums, int tiles) {
    __shared__ int warp_sums_smem[SUMS_WARPS];
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    int before = 0;  // the sum of all tiles of earlier steps
    int next = tid < tiles ? tile_sums[tid] : 0;
#pragma unroll 1
    for (int first = 0; first < tiles; first += SUMS_THREADS) {
        const int tile = first + tid;
        const int sum = next;
        // The next step's sums are in flight during this one.
        next = tile + SUMS_THREADS < tiles ? tile_sums[tile + SUMS_THREADS] : 0;
        // TODO(2): Store in tile_sums[tile] the sum of all tiles before this one, and add this step's sum to before. No
        //   warp may be a step ahead of another where both use shared memory. (~9 lines)
        const int end = warp_scan(sum);
        if (lane_id == WARP_SIZE - 1) warp_sums_smem[warp_id] = end;
        __syncthreads();  // every warp reads what all warps wrote
        const int warp_ends = warp_scan(warp_sums_smem[lane_id]);
        const int warp_before = warp_id > 0 ? __shfl_sync(FULL_MASK, warp_ends, warp_id - 1) : 0;
        if (tile < tiles) tile_sums[tile] = before + warp_before + end - sum;
        before += __shfl_sync(FULL_MASK, warp_ends, SUMS_WARPS - 1);
        __syncthreads();  // the next step writes where a slow warp may still read
        // END TODO(2)
    }
}

// tile_before[tile] is the sum of all tiles before it. One block per tile.
__global__ void __launch_bounds__(THREADS)
    scan_tiles_kernel(const int* __restrict__ x, int* __restrict__ y, const int* __restrict__ tile_before, int n) {
    const int first = blockIdx.x * TILE;
    int sums[CHUNKS][VEC];
    // TODO(3): Scan the tile and store it, from the sum of all tiles before it on. (~3 lines)
    load_tile(sums, x + first, n - first);
    scan_tile(sums);
    store_tile(y + first, sums, tile_before[blockIdx.x], n - first);
    // END TODO(3)
}

KATA_EXPORT void scan_three_kernels_i32(const int* x, int* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    // TODO(4): Launch the three kernels. The scratch memory has one number per tile. (~7 lines)
    const int tiles = (n - 1) / TILE + 1;
    int* tile_sums = nullptr;
    cudaMallocAsync(&tile_sums, tiles * sizeof(int), stream);
    // Kernels of one stream run one after the other: each launch sees all that the one before it wrote.
    sum_tiles_kernel<<<tiles, THREADS, 0, stream>>>(x, tile_sums, n);
    scan_sums_kernel<<<1, SUMS_THREADS, 0, stream>>>(tile_sums, tiles);
    scan_tiles_kernel<<<tiles, THREADS, 0, stream>>>(x, y, tile_sums, n);
    cudaFreeAsync(tile_sums, stream);
    // END TODO(4)
}
