// scan_chained_i32: y[i] = x[0] + ... + x[i], the inclusive scan of any number of integers, in one launch
//
// Shapes     x: [n] i32, contiguous, 16-byte aligned base, y: [n] i32, 16-byte aligned base, any n >= 0, sums fit 32
//            bits
// Technique  a block scans a tile of 32768 in its registers, waits for the prefix of the tile before it, and releases
//            its own; blocks take tiles in the order in which they start
// New        over scan_three_kernels_i32: x is read once, because blocks pass a number to each other inside a launch
// Bound      latency: the prefix travels from tile to tile, one after the other
#include "kata.cuh"
#include <cuda/atomic>

constexpr int THREADS = 1024;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int VEC = 4;                    // consecutive elements of a lane
constexpr int CHUNK = WARP_SIZE * VEC;    // consecutive elements of a warp, VEC per lane
constexpr int CHUNKS = 8;                 // of a warp, one after the other
constexpr int PER_WARP = CHUNKS * CHUNK;  // consecutive elements of a warp
constexpr int TILE = WARPS * PER_WARP;    // elements of a block
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp scans the sums of all warps");

// What a tile tells the next one.
struct Link {
    int prefix;      // the sum of all elements up to the tile's last
    unsigned ready;  // 0 until prefix is there
};

using Flag = cuda::atomic_ref<unsigned, cuda::thread_scope_device>;

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

__global__ void __launch_bounds__(THREADS)
    scan_chained_i32_kernel(const int* __restrict__ x, int* __restrict__ y, Link* links, unsigned* next_tile, int n) {
    __shared__ int tile_smem, before_smem;
    const int tid = threadIdx.x;
    // TODO(1): Let tile_smem be the lowest tile that no block has taken yet. Nothing promises that block i starts
    //   before block i + 1. (~1 line)
    // END TODO(1)
    __syncthreads();  // all threads read the tile
    const int tile = tile_smem;
    const int first = tile * TILE;
    int sums[CHUNKS][VEC];
    load_tile(sums, x + first, n - first);
    const int tile_sum = scan_tile(sums);
    if (tid == 0) {
        int before = 0;
        // TODO(2): Wait until the tile before this one is ready, if there is one. Then read its prefix, in an order in
        //   which it must be there. (~4 lines)
        // END TODO(2)
        // TODO(3): Store this tile's prefix and say that it is ready, in an order in which every thread that sees the
        //   one sees the other. (~2 lines)
        // END TODO(3)
        before_smem = before;
    }
    __syncthreads();  // one thread has waited for all
    store_tile(y + first, sums, before_smem, n - first);
}

KATA_EXPORT void scan_chained_i32(const int* x, int* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int tiles = (n - 1) / TILE + 1;
    // One link per tile, and the number of the next tile in the last one's place.
    Link* links = nullptr;
    cudaMallocAsync(&links, (tiles + 1) * sizeof(Link), stream);
    // TODO(4): No tile is ready when the kernel starts, and no tile is taken. (~1 line)
    // END TODO(4)
    unsigned* next_tile = &links[tiles].ready;
    scan_chained_i32_kernel<<<tiles, THREADS, 0, stream>>>(x, y, links, next_tile, n);
    cudaFreeAsync(links, stream);
}
