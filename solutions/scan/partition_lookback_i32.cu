// partition_lookback_i32: the elements > 0 of x to the front of y, in order, the others to its back, the first of them
// last
//
// Shapes     x: [n] i32, contiguous, y: [n] i32, count: [1] i32, how many elements are > 0, any n >= 0
// Technique  ballots rank the elements of a tile; look-back counts those > 0 in all tiles before; the tile waits for
//            that in shared memory, in order, so that its two runs leave coalesced
// New        over scan_lookback_ahead_i32: what is scanned is 0 or 1 per element, and it says where the element goes
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cuda/atomic>

constexpr int THREADS = 256;
constexpr int BLOCKS_PER_SM = 4;  // each has a tile in registers and one in shared memory
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int ITEMS = 32;                    // elements per thread
constexpr int PER_WARP = WARP_SIZE * ITEMS;  // consecutive elements of a warp, 32 at a time
constexpr int TILE = WARPS * PER_WARP;       // elements of a block
constexpr unsigned FULL_MASK = 0xffffffff;
// A poll of a state delays the stores that it waits for.
constexpr unsigned FIRST_POLL_NS = 500;
constexpr unsigned NEXT_POLL_NS = 500;
static_assert(THREADS % WARP_SIZE == 0, "ballots name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp scans the counts of all warps");

// What the other blocks can read of a tile, in one word of 8 bytes: how much is known, and the number that is known.
// One access moves both, so a reader never gets one without the other.
using State = unsigned long long;
enum Known : unsigned {
    NOTHING = 0,
    SUM = 1,     // how many elements of the tile are > 0
    PREFIX = 2,  // how many are > 0 up to the tile's last element
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

// How many elements of all tiles before `tile` are > 0, in every lane of the warp. All 32 lanes must call it together.
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

__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) partition_lookback_i32_kernel(
    const int* __restrict__ x, int* __restrict__ y, int* __restrict__ count, State* states, unsigned* next_tile, int n,
    int tiles) {
    __shared__ int next_smem, before_smem;
    __shared__ int warp_counts_smem[WARPS];
    __shared__ int sorted_smem[TILE];  // a tile's elements > 0, then the others, both in order
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    const int lane_first = warp_id * PER_WARP + lane_id;  // this lane's first place in a tile
    // Blocks draw the numbers of their tiles: a tile waits only for tiles whose blocks run already.
    if (tid == 0) next_smem = atomicAdd(next_tile, 1);
    int tile = -1;       // the tile in sorted_smem, which lacks its prefix; none at first
    int tile_count = 0;  // how many of its elements are > 0
    while (true) {
        __syncthreads();  // all threads read the number of the next tile
        const int next = next_smem;
        const int next_left = next < tiles ? min(n - next * TILE, TILE) : 0;  // its elements
        int x_rmem[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int at = lane_first + i * WARP_SIZE;
            x_rmem[i] = at < next_left ? x[next * TILE + at] : 0;  // 0 does not count
        }
        // How many elements > 0 the warp has.
        int warp_count = 0;
        // TODO(1): Count them. The 32 elements i of the warp are neighbours. (~2 lines)
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) warp_count += __popc(__ballot_sync(FULL_MASK, x_rmem[i] > 0));
        // END TODO(1)
        if (lane_id == 0) warp_counts_smem[warp_id] = warp_count;
        __syncthreads();  // every warp reads what all warps wrote; the tile is in order
        const int warp_ends = warp_scan(lane_id < WARPS ? warp_counts_smem[lane_id] : 0);
        const int warp_before = __shfl_sync(FULL_MASK, warp_ends, warp_id) - warp_count;
        const int next_count = __shfl_sync(FULL_MASK, warp_ends, WARPS - 1);
        // As in scan_lookback_i32: the next tile's sum is published before this warp looks back for `tile`.
        if (tid < WARP_SIZE) {
            if (tid == 0 && next < tiles)
                StateRef(states[next]).store(pack_state(SUM, next_count), cuda::memory_order_relaxed);
            if (tile >= 0) {
                const int before = look_back(states, tile);
                if (tid == 0) {
                    StateRef(states[tile]).store(pack_state(PREFIX, before + tile_count), cuda::memory_order_relaxed);
                    before_smem = before;
                }
            }
        }
        int drawn = 0;  // arrives while this tile is stored
        if (tid == 0) drawn = atomicAdd(next_tile, 1);
        __syncthreads();  // one warp has looked back for all; all threads have the number of the next tile
        if (tile >= 0) {
            // TODO(2): shared -> global: the first run follows the elements > 0 of all tiles before, from the front.
            //   The second follows the others of all tiles before, from the back. The tile that knows the total stores
            //   it. (~8 lines)
            const int first = tile * TILE;
            const int left = min(n - first, TILE);
            const int before = before_smem;
            const int others_before = first - before;
#pragma unroll 8
            for (int i = tid; i < left; i += THREADS)
                y[i < tile_count ? before + i : n - 1 - others_before - (i - tile_count)] = sorted_smem[i];
            if (tid == 0 && tile == tiles - 1) count[0] = before + tile_count;
            // END TODO(2)
        }
        if (next >= tiles) return;
        __syncthreads();  // all threads have stored the tile before the next one takes its place
        // TODO(3): registers -> shared: the next tile's elements > 0 go to places 0 .. next_count - 1, the others to
        //   the places after them, both in order. A ballot says how many elements > 0 the lanes below have. (~9 lines)
        int rank = warp_before;  // how many elements > 0 precede the warp's next 32
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int at = lane_first + i * WARP_SIZE;
            const unsigned kept = __ballot_sync(FULL_MASK, x_rmem[i] > 0);
            const int before = rank + __popc(kept & ((1u << lane_id) - 1));  // the bits of the lanes below
            if (at < next_left) sorted_smem[x_rmem[i] > 0 ? before : next_count + at - before] = x_rmem[i];
            rank += __popc(kept);
        }
        // END TODO(3)
        if (tid == 0) next_smem = drawn;
        tile = next;
        tile_count = next_count;
    }
}

KATA_EXPORT void partition_lookback_i32(const int* x, int* y, int* count, int n, cudaStream_t stream) {
    if (n == 0) {  // a grid of no blocks is an invalid launch
        cudaMemsetAsync(count, 0, sizeof(int), stream);
        return;
    }
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
    partition_lookback_i32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, count, states, next_tile, n, tiles);
    cudaFreeAsync(states, stream);
}
