// scan_lookback_i32: y[i] = x[0] + ... + x[i], the inclusive scan of any number of integers, in one launch
//
// Shapes     x: [n] i32, contiguous, 16-byte aligned base, y: [n] i32, 16-byte aligned base, any n >= 0, sums fit 32
//            bits
// Technique  a tile publishes its sum at once; a warp then adds the sums of the tiles before it, 32 at a time, until
//            one of them has published its prefix (decoupled look-back)
// New        over scan_chained_i32: a tile waits for the sums of its predecessors, which they know before their
//            prefixes
// Bound      memory bandwidth
#include "kata.cuh"
#include <cuda/atomic>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int VEC = 4;                    // consecutive elements of a lane
constexpr int CHUNK = WARP_SIZE * VEC;    // consecutive elements of a warp, VEC per lane
constexpr int CHUNKS = 8;                 // of a warp, one after the other
constexpr int PER_WARP = CHUNKS * CHUNK;  // consecutive elements of a warp
constexpr int TILE = WARPS * PER_WARP;    // elements of a block
constexpr unsigned FULL_MASK = 0xffffffff;
// A poll of a state delays the stores that it waits for. So a warp does not ask before most tiles can have an answer.
constexpr unsigned FIRST_POLL_NS = 3000;
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
        // TODO(1): Read the state of tile `at`, if there is one, until something is known in all 32 lanes, and sleep
        //   NEXT_POLL_NS between two polls. Each state is one access, and no order to other accesses is needed.
        //   (~5 lines)
        while (true) {
            if (at >= 0) state = StateRef(states[at]).load(cuda::memory_order_relaxed);
            if (!__any_sync(FULL_MASK, known_of(state) == NOTHING)) break;
            __nanosleep(NEXT_POLL_NS);
        }
        // END TODO(1)
        // TODO(2): Add the numbers of the window from the nearest tile back to the first prefix, and leave the loop if
        //   there is one. Every lane gets the sum. (~5 lines)
        const unsigned prefixes = __ballot_sync(FULL_MASK, known_of(state) == PREFIX);
        const int nearest = prefixes != 0 ? __ffs(prefixes) - 1 : WARP_SIZE - 1;  // no lane above it is added
        sum += warp_reduce_sum(lane_id <= nearest ? number_of(state) : 0);
        if (prefixes != 0) break;
        // END TODO(2)
    }
    return sum;
}

__global__ void __launch_bounds__(THREADS) scan_lookback_i32_kernel(
    const int* __restrict__ x, int* __restrict__ y, State* states, unsigned* next_tile, int n) {
    __shared__ int tile_smem, before_smem;
    const int tid = threadIdx.x;
    // Blocks take tiles in the order in which they start: a tile waits only for tiles whose blocks run already.
    if (tid == 0) tile_smem = atomicAdd(next_tile, 1);
    __syncthreads();  // all threads read the tile
    const int tile = tile_smem;
    const int first = tile * TILE;
    int sums[CHUNKS][VEC];
    load_tile(sums, x + first, n - first);
    const int tile_sum = scan_tile(sums);
    if (tid < WARP_SIZE) {
        // TODO(3): Publish the tile's sum before this warp looks back, and the tile's prefix as soon as it is known.
        //   The block finds the sum of all tiles before this one in before_smem. (~6 lines)
        if (tid == 0) StateRef(states[tile]).store(pack_state(SUM, tile_sum), cuda::memory_order_relaxed);
        const int before = look_back(states, tile);
        if (tid == 0) {
            StateRef(states[tile]).store(pack_state(PREFIX, before + tile_sum), cuda::memory_order_relaxed);
            before_smem = before;
        }
        // END TODO(3)
    }
    __syncthreads();  // one warp has looked back for all
    store_tile(y + first, sums, before_smem, n - first);
}

KATA_EXPORT void scan_lookback_i32(const int* x, int* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int tiles = (n - 1) / TILE + 1;
    // One state per tile, and after them the number of the next tile.
    State* states = nullptr;
    cudaMallocAsync(&states, (tiles + 1) * sizeof(State), stream);
    // Nothing is known of any tile, and none is taken.
    cudaMemsetAsync(states, 0, (tiles + 1) * sizeof(State), stream);
    unsigned* next_tile = reinterpret_cast<unsigned*>(states + tiles);
    scan_lookback_i32_kernel<<<tiles, THREADS, 0, stream>>>(x, y, states, next_tile, n);
    cudaFreeAsync(states, stream);
}
