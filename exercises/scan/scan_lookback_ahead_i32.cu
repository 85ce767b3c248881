// scan_lookback_ahead_i32: y[i] = x[0] + ... + x[i], the inclusive scan of any number of integers, in one launch
//
// Shapes     x: [n] i32, contiguous, 16-byte aligned base, y: [n] i32, 16-byte aligned base, any n >= 0, sums fit 32
//            bits
// Technique  look-back with two tiles per block, which stays: it loads its next tile and publishes that one's sum, and
//            only then looks back for the tile at hand
// New        over scan_lookback_i32: most sums are there before a warp asks for them, and loads are in flight while it
//            waits
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cuda/atomic>

constexpr int THREADS = 448;
constexpr int BLOCKS_PER_SM = 2;  // each has two tiles in registers: allows 72 per thread
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int VEC = 4;                    // consecutive elements of a lane
constexpr int CHUNK = WARP_SIZE * VEC;    // consecutive elements of a warp, VEC per lane
constexpr int CHUNKS = 6;                 // of a warp, one after the other
constexpr int PER_WARP = CHUNKS * CHUNK;  // consecutive elements of a warp
constexpr int TILE = WARPS * PER_WARP;    // elements of a block
constexpr unsigned FULL_MASK = 0xffffffff;
// A poll of a state delays the stores that it waits for.
constexpr unsigned FIRST_POLL_NS = 500;
constexpr unsigned NEXT_POLL_NS = 500;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp scans the sums of all warps");

// What the other blocks can read of a tile, in one word of 8 bytes: how much is known, and the number that is known.
// One access moves both, so a reader never gets one without the other.
using State = unsigned long long;
enum Known : unsigned {
    NOTHING = 0,
    SUM = 1,     // the sum of the tile
    PREFIX = 2,  // the sum of all elements up to the tile's last
};
using StateRef = cuda::atomic_ref<State, cuda::thread_scope_device>;

__device__ __forceinline__ State pack_state(Known known, int number) {
    return static_cast<State>(known) << 32 | static_cast<unsigned>(number);
}

__device__ __forceinline__ Known known_of(State state) {
    return static_cast<Known>(state >> 32);
}

__device__ __forceinline__ int number_of(State state) {
    return static_cast<int>(state);
}

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
            const int4 y4 = make_int4(before + sums[0], before + sums[1], before + sums[2], before + sums[3]);
            __stcs(reinterpret_cast<int4*>(y_tile + at), y4);  // never read here: the caches evict it first
        } else {
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                if (at + j < left) y_tile[at + j] = before + sums[j];
            }
        }
    }
}

// Makes sums[c][j] the sum over the warp's elements up to this one. All 32 lanes must call it together.
__device__ __forceinline__ void scan_chunks(int (&sums)[CHUNKS][VEC]) {
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
}

// The sum of a tile, and of those of its elements that precede the calling thread's warp.
struct TileSum {
    int all;
    int warp_before;
};

// These sums for the tile whose elements are x_rmem. A barrier is within: all threads of the block must call it
// together.
__device__ __forceinline__ TileSum sum_tile(const int (&x_rmem)[CHUNKS][VEC]) {
    __shared__ int warp_sums_smem[WARPS];
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    int sum = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
        for (int j = 0; j < VEC; ++j) sum += x_rmem[c][j];
    sum = warp_reduce_sum(sum);
    if (lane_id == 0) warp_sums_smem[warp_id] = sum;
    __syncthreads();  // every warp reads what all warps wrote
    const int ends = warp_scan(lane_id < WARPS ? warp_sums_smem[lane_id] : 0);
    return {__shfl_sync(FULL_MASK, ends, WARPS - 1), __shfl_sync(FULL_MASK, ends, warp_id) - sum};
}

// The sum of all tiles before `tile`, in every lane of the warp. All 32 lanes must call it together.
__device__ __forceinline__ int look_back(State* states, int tile) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    int sum = 0;
    __nanosleep(FIRST_POLL_NS);
    // A window of 32 tiles at a time, the nearest in lane 0.
    for (int last = tile - 1; last >= 0; last -= WARP_SIZE) {
        const int at = last - lane_id;
        // Before tile 0 there is nothing: lanes that look there see a prefix of 0.
        State state = pack_state(PREFIX, 0);
        while (true) {
            if (at >= 0) state = StateRef(states[at]).load(cuda::memory_order_relaxed);
            if (!__any_sync(FULL_MASK, known_of(state) == NOTHING)) break;
            __nanosleep(NEXT_POLL_NS);
        }
        const unsigned prefixes = __ballot_sync(FULL_MASK, known_of(state) == PREFIX);
        const int nearest = prefixes != 0 ? __ffs(prefixes) - 1 : WARP_SIZE - 1;  // no lane above it is added
        sum += warp_reduce_sum(lane_id <= nearest ? number_of(state) : 0);
        if (prefixes != 0) break;
    }
    return sum;
}

__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) scan_lookback_ahead_i32_kernel(
    const int* __restrict__ x, int* __restrict__ y, State* states, unsigned* next_tile, int n, int tiles) {
    __shared__ int next_smem, before_smem;
    const int tid = threadIdx.x;
    // Blocks draw the numbers of their tiles: a tile waits only for tiles whose blocks run already.
    if (tid == 0) next_smem = atomicAdd(next_tile, 1);
    int tile = -1;  // the tile that lacks its prefix, none at first
    TileSum sum = {0, 0};
    int sums[CHUNKS][VEC] = {};
    while (true) {
        __syncthreads();  // all threads read the number of the next tile
        const int next = next_smem;
        TileSum next_sum = {0, 0};
        int next_rmem[CHUNKS][VEC] = {};
        // TODO(1): Load the next tile and sum it, if there is one. Scan the chunks of the tile at hand while the loads
        //   are in flight. (~3 lines)
        // END TODO(1)
        if (tid < WARP_SIZE) {
            // TODO(2): Publish the next tile's sum before this warp looks back for `tile`, and the prefix of `tile`, if
            //   there is one, as soon as it is known. The block finds the sum of all tiles before `tile` in
            //   before_smem. (~9 lines)
            // END TODO(2)
        }
        int drawn = 0;  // arrives while this tile is stored
        if (tid == 0) drawn = atomicAdd(next_tile, 1);
        __syncthreads();  // one warp has looked back for all; all threads have the number of the next tile
        if (tile >= 0) store_tile(y + tile * TILE, sums, before_smem + sum.warp_before, n - tile * TILE);
        if (next >= tiles) return;
        if (tid == 0) next_smem = drawn;
        // TODO(3): The next tile becomes the tile at hand: its number, its sum, its elements. (~6 lines)
        // END TODO(3)
    }
}

KATA_EXPORT void scan_lookback_ahead_i32(const int* x, int* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int tiles = (n - 1) / TILE + 1;
    int device = 0, sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    // One state per tile, and after them the number of the next tile.
    State* states = nullptr;
    cudaMallocAsync(&states, (tiles + 1) * sizeof(State), stream);
    // Nothing is known of any tile, and none is taken.
    cudaMemsetAsync(states, 0, (tiles + 1) * sizeof(State), stream);
    unsigned* next_tile = reinterpret_cast<unsigned*>(states + tiles);
    const int blocks = std::min(tiles, sms * BLOCKS_PER_SM);  // as many as run at the same time
    scan_lookback_ahead_i32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, states, next_tile, n, tiles);
    cudaFreeAsync(states, stream);
}
