// scan_segmented_i32: y[i] = x[j] + ... + x[i], where j is the last place up to i with a head, or 0 if there is none
//
// Shapes     x: [n] i32, head: [n] u8, any byte other than 0 is a head, contiguous, 16-byte aligned bases, y: [n] i32,
//            16-byte aligned base, any n >= 0, sums fit 32 bits
// Technique  the single-pass scan of pairs (has a head, sum since the last head)
// New        over scan_lookback_i32: an operator that is associative but not commutative, and has no inverse; a tile
//            with a head knows its prefix without looking back
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <cuda/atomic>

constexpr int THREADS = 256;
constexpr int BLOCKS_PER_SM = 5;  // limits registers to 48; cards with 1024 threads per SM have no room for 5
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int VEC = 4;                    // consecutive elements of a lane
constexpr int CHUNK = WARP_SIZE * VEC;    // consecutive elements of a warp, VEC per lane
constexpr int CHUNKS = 4;                 // of a warp, one after the other
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
    SUM = 1,     // the sum of the tile, which has no head
    PREFIX = 2,  // the sum since the last head up to the tile's last element
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

// Neighbouring elements: whether one of them is a head, and the sum since the last head, or of all if there is none.
struct Run {
    bool head;
    int sum;
};

// The run of `left` and, after it, `right`. {false, 0} on either side changes nothing.
__device__ __forceinline__ Run joined(Run left, Run right) {
    // TODO(1): Say whether it has a head, and what its sum is. (~1 line)
    return {left.head || right.head, right.head ? right.sum : left.sum + right.sum};
    // END TODO(1)
}

// The run of the lane `offset` below; {false, 0} where there is no such lane. All 32 lanes must call it together.
__device__ __forceinline__ Run lane_below(Run run, int offset) {
    const int head = __shfl_up_sync(FULL_MASK, static_cast<int>(run.head), offset);
    const int sum = __shfl_up_sync(FULL_MASK, run.sum, offset);
    return threadIdx.x % WARP_SIZE >= offset ? Run{head != 0, sum} : Run{false, 0};
}

// The run of lane `from`, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ Run broadcast(Run run, int from) {
    const int head = __shfl_sync(FULL_MASK, static_cast<int>(run.head), from);
    return {head != 0, __shfl_sync(FULL_MASK, run.sum, from)};
}

// Lane i gets the run of lanes 0..i. All 32 lanes must call it together.
__device__ __forceinline__ Run warp_scan(Run run) {
    // TODO(2): Five steps as in a scan of numbers. Which run is the left one matters. (~2 lines)
#pragma unroll
    for (int offset = 1; offset < WARP_SIZE; offset *= 2) run = joined(lane_below(run, offset), run);
    // END TODO(2)
    return run;
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

// global -> registers: the lane's elements of a tile of which the first `left` exist, each a run; {false, 0} past them.
__device__ __forceinline__ void load_tile(
    Run (&to_rmem)[CHUNKS][VEC], const int* x_tile, const uint8_t* head_tile, int left) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const int at = lane_first() + c * CHUNK;
        if (at + VEC <= left) {
            const int4 x4 = *reinterpret_cast<const int4*>(x_tile + at);
            const uchar4 head4 = *reinterpret_cast<const uchar4*>(head_tile + at);
            to_rmem[c][0] = {head4.x != 0, x4.x}, to_rmem[c][1] = {head4.y != 0, x4.y};
            to_rmem[c][2] = {head4.z != 0, x4.z}, to_rmem[c][3] = {head4.w != 0, x4.w};
        } else {
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                to_rmem[c][j] = at + j < left ? Run{head_tile[at + j] != 0, x_tile[at + j]} : Run{false, 0};
        }
    }
}

// registers -> global: the sums of what load_tile loads, after `before`.
__device__ __forceinline__ void store_tile(int* y_tile, const Run (&from_rmem)[CHUNKS][VEC], Run before, int left) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const int at = lane_first() + c * CHUNK;
        int sums[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) sums[j] = joined(before, from_rmem[c][j]).sum;
        if (at + VEC <= left) {
            *reinterpret_cast<int4*>(y_tile + at) = make_int4(sums[0], sums[1], sums[2], sums[3]);
        } else {
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                if (at + j < left) y_tile[at + j] = sums[j];
            }
        }
    }
}

// Makes runs[c][j] the run of the tile's elements up to this one. Returns the tile's run, in every thread. All threads
// must call it together, once.
__device__ __forceinline__ Run scan_tile(Run (&runs)[CHUNKS][VEC]) {
    __shared__ Run warp_runs_smem[WARPS];
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    Run carry{false, 0};  // the run of the warp's chunks so far
    // TODO(3): Scan the warp's chunks, one after the other. No sum can be subtracted from a run: what precedes a lane's
    //   elements is what the lane below ends with. (~9 lines)
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
        for (int j = 1; j < VEC; ++j) runs[c][j] = joined(runs[c][j - 1], runs[c][j]);
        const Run end = warp_scan(runs[c][VEC - 1]);
        const Run before = joined(carry, lane_below(end, 1));
#pragma unroll
        for (int j = 0; j < VEC; ++j) runs[c][j] = joined(before, runs[c][j]);
        carry = joined(carry, broadcast(end, WARP_SIZE - 1));
    }
    // END TODO(3)
    if (lane_id == 0) warp_runs_smem[warp_id] = carry;
    __syncthreads();  // every warp reads what all warps wrote
    const Run ends = warp_scan(lane_id < WARPS ? warp_runs_smem[lane_id] : Run{false, 0});
    const Run before = broadcast(lane_below(ends, 1), warp_id);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
        for (int j = 0; j < VEC; ++j) runs[c][j] = joined(before, runs[c][j]);
    return broadcast(ends, WARPS - 1);
}

// The sum since the last head in all tiles before `tile`, in every lane of the warp. All 32 lanes must call it
// together.
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

__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) scan_segmented_i32_kernel(
    const int* __restrict__ x, const uint8_t* __restrict__ head, int* __restrict__ y, State* states,
    unsigned* next_tile, int n) {
    __shared__ int tile_smem, before_smem;
    const int tid = threadIdx.x;
    // Blocks take tiles in the order in which they start: a tile waits only for tiles whose blocks run already.
    if (tid == 0) tile_smem = atomicAdd(next_tile, 1);
    __syncthreads();  // all threads read the tile
    const int tile = tile_smem;
    const int first = tile * TILE;
    Run runs[CHUNKS][VEC];
    load_tile(runs, x + first, head + first, n - first);
    const Run tile_run = scan_tile(runs);
    if (tid < WARP_SIZE) {
        // TODO(4): Publish what is known of this tile: before the warp looks back, and once more after it, if more is
        //   known then. No tile looks back past a head. (~8 lines)
        if (tid == 0) {
            const Known known = tile_run.head ? PREFIX : SUM;
            StateRef(states[tile]).store(pack_state(known, tile_run.sum), cuda::memory_order_relaxed);
        }
        const int before = look_back(states, tile);
        if (tid == 0) {
            const Run prefix = joined({false, before}, tile_run);
            StateRef(states[tile]).store(pack_state(PREFIX, prefix.sum), cuda::memory_order_relaxed);
            before_smem = before;
        }
        // END TODO(4)
    }
    __syncthreads();  // one warp has looked back for all
    store_tile(y + first, runs, {false, before_smem}, n - first);
}

KATA_EXPORT void scan_segmented_i32(const int* x, const uint8_t* head, int* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int tiles = (n - 1) / TILE + 1;
    // One state per tile, and after them the number of the next tile.
    State* states = nullptr;
    cudaMallocAsync(&states, (tiles + 1) * sizeof(State), stream);
    // Nothing is known of any tile, and none is taken.
    cudaMemsetAsync(states, 0, (tiles + 1) * sizeof(State), stream);
    unsigned* next_tile = reinterpret_cast<unsigned*>(states + tiles);
    scan_segmented_i32_kernel<<<tiles, THREADS, 0, stream>>>(x, head, y, states, next_tile, n);
    cudaFreeAsync(states, stream);
}
