// scan_lookback_prefetch_i32: y[i] = x[0] + ... + x[i], the inclusive scan of any number of integers, in one launch
//
// Shapes     x: [n] i32, contiguous, 16-byte aligned base, y: [n] i32, 16-byte aligned base, any n >= 0, sums fit 32
//            bits
// Technique  single pass with look-back; resident blocks take tile after tile, and the next one is copied to shared
//            memory by cp.async while a block looks back
// New        over scan_lookback_i32: loads are in flight while a block waits for its predecessors
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cuda/atomic>

constexpr int THREADS = 256;
constexpr int BLOCKS_PER_SM = 5;  // while some look back or store, the copies of all are in flight
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

// global -> shared: starts to copy the lane's elements of a tile of which the first `left` exist; 0 past them. Without
// registers: the thread goes on. cp.async of the PTX ISA ("Data Movement and Conversion Instructions") reads the bytes
// that its last operand names, and fills the 16 up with zeros.
__device__ __forceinline__ void start_copy(int* to_smem, const int* x_tile, int left) {
    // TODO(1): Copy the VEC elements of each chunk to the same place of the tile in shared memory. No byte past the end
    //   of x is read. (~8 lines)
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const int at = lane_first() + c * CHUNK;
        const int bytes = min(max(left - at, 0), VEC) * static_cast<int>(sizeof(int));
        const int* from = bytes > 0 ? x_tile + at : x_tile;
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(to_smem + at));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    }
    // END TODO(1)
}

// shared -> registers: what start_copy copied, once it is there. A lane reads only what it copied itself.
__device__ __forceinline__ void finish_copy(int (&to_rmem)[CHUNKS][VEC], const int* from_smem) {
    // TODO(2): Wait for this thread's copies, then load its elements. (~6 lines)
    asm volatile("cp.async.wait_all;\n" ::: "memory");
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const int4 x4 = *reinterpret_cast<const int4*>(from_smem + lane_first() + c * CHUNK);
        to_rmem[c][0] = x4.x, to_rmem[c][1] = x4.y, to_rmem[c][2] = x4.z, to_rmem[c][3] = x4.w;
    }
    // END TODO(2)
}

// registers -> global: what finish_copy loads, each plus `before`.
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
    // A window of 32 tiles at a time, the nearest in lane 0.
    for (int last = tile - 1; last >= 0; last -= WARP_SIZE) {
        const int at = last - lane_id;
        // Before tile 0 there is nothing: lanes that look there see a prefix of 0.
        State state = pack_state(PREFIX, 0);
        do {
            if (at >= 0) state = StateRef(states[at]).load(cuda::memory_order_relaxed);
        } while (__any_sync(FULL_MASK, known_of(state) == NOTHING));
        const unsigned prefixes = __ballot_sync(FULL_MASK, known_of(state) == PREFIX);
        const int nearest = prefixes != 0 ? __ffs(prefixes) - 1 : WARP_SIZE - 1;  // no lane above it is added
        sum += warp_reduce_sum(lane_id <= nearest ? number_of(state) : 0);
        if (prefixes != 0) break;
    }
    return sum;
}

__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) scan_lookback_prefetch_i32_kernel(
    const int* __restrict__ x, int* __restrict__ y, State* states, int* next_tile, int tiles, int n) {
    __shared__ alignas(16) int x_smem[TILE];
    __shared__ int first_smem, next_smem, before_smem;
    const int tid = threadIdx.x;
    // A block finishes its tiles in the order in which it took them. So the lowest tile that is not finished is one
    // that a block works on, and all tiles before it are finished: it need not wait.
    if (tid == 0) first_smem = atomicAdd(next_tile, 1);
    __syncthreads();  // all threads read the tile
    int tile = first_smem;
    if (tile < tiles) start_copy(x_smem, x + tile * TILE, n - tile * TILE);
    while (tile < tiles) {
        const int first = tile * TILE;
        int sums[CHUNKS][VEC];
        finish_copy(sums, x_smem);
        int next = tiles;  // the tile after this one, if it is below `tiles`
        // TODO(3): Take the next tile, and start to copy it. No thread may overwrite in next_smem what another has not
        //   read yet. (~4 lines)
        // All threads read the number before this one before they came to the last barrier of the tile before.
        if (tid == 0) next_smem = atomicAdd(next_tile, 1);
        __syncthreads();  // all threads read the number
        next = next_smem;
        if (next < tiles) start_copy(x_smem, x + next * TILE, n - next * TILE);
        // END TODO(3)
        const int tile_sum = scan_tile(sums);
        if (tid < WARP_SIZE) {
            if (tid == 0) StateRef(states[tile]).store(pack_state(SUM, tile_sum), cuda::memory_order_relaxed);
            const int before = look_back(states, tile);
            if (tid == 0) {
                StateRef(states[tile]).store(pack_state(PREFIX, before + tile_sum), cuda::memory_order_relaxed);
                before_smem = before;
            }
        }
        __syncthreads();  // one warp has looked back for all
        store_tile(y + first, sums, before_smem, n - first);
        tile = next;
    }
}

KATA_EXPORT void scan_lookback_prefetch_i32(const int* x, int* y, int n, cudaStream_t stream) {
    if (n == 0) return;  // a grid of no blocks is an invalid launch
    const int tiles = (n - 1) / TILE + 1;
    // One state per tile, and after them the number of the next tile.
    State* states = nullptr;
    cudaMallocAsync(&states, (tiles + 1) * sizeof(State), stream);
    // Nothing is known of any tile, and none is taken.
    cudaMemsetAsync(states, 0, (tiles + 1) * sizeof(State), stream);
    int* next_tile = reinterpret_cast<int*>(states + tiles);
    int device = 0, sms = 0, blocks_per_sm = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, scan_lookback_prefetch_i32_kernel, THREADS, 0);
    const int blocks = std::min(sms * blocks_per_sm, tiles);
    scan_lookback_prefetch_i32_kernel<<<blocks, THREADS, 0, stream>>>(x, y, states, next_tile, tiles, n);
    cudaFreeAsync(states, stream);
}
