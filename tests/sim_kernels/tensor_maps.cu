// Tensor maps: boxes in and out of shared memory, and what goes wrong with them (sm_90).
#include "hopper.cuh"

constexpr int THREADS = 128, ROWS = 16, COLUMNS = 32, TILE = ROWS * COLUMNS;

// ---- any box of floats, as it stands in shared memory

template <int RANK>
DEVICE void load_any(void* to, const CUtensorMap* map, const int* at, uint64_t* bar) {
    if constexpr (RANK == 1)
        asm volatile(
            "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::"r"(
                smem(to)),
            "l"(map), "r"(at[0]), "r"(smem(bar))
            : "memory");
    if constexpr (RANK == 2) load_box(to, map, at[0], at[1], bar);
    if constexpr (RANK == 3)
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
            "[%5];" ::"r"(smem(to)),
            "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(smem(bar))
            : "memory");
    if constexpr (RANK == 4)
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
            "[%6];" ::"r"(smem(to)),
            "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(smem(bar))
            : "memory");
    if constexpr (RANK == 5)
        asm volatile(
            "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, "
            "%6}], [%7];" ::"r"(smem(to)),
            "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(smem(bar))
            : "memory");
}
struct Place {
    int at[5];
};
// Brings the box to `offset` bytes behind a multiple of 1024, then the range of shared memory that it fills to y.
template <int RANK>
__global__ void any_box_kernel(
    const __grid_constant__ CUtensorMap map, Place place, float* y, int words, int offset, int bytes) {
    extern __shared__ __align__(1024) char tile[];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) {
        initialise(&bar, 1);
        expect(&bar, bytes);
        load_any<RANK>(tile + offset, &map, place.at, &bar);
    }
    __syncthreads();
    wait(&bar, 0);
    for (int i = threadIdx.x; i < words; i += THREADS) y[i] = reinterpret_cast<float*>(tile + offset)[i];
}
KATA_EXPORT void any_box(
    const float* x, float* y, int d0, int d1, int d2, int d3, int d4, int b0, int b1, int b2, int b3, int b4, int s0,
    int s1, int s2, int s3, int s4, int e0, int e1, int e2, int e3, int e4, int rank, int words, int offset,
    int swizzle, int bytes, cudaStream_t stream) {
    const int h[] = {d0, d1, d2, d3, d4, b0, b1, b2, b3, b4, s0, s1, s2, s3, s4, e0, e1, e2, e3, e4};
    uint64_t dims[5], strides[5];
    uint32_t box[5], steps[5];
    Place place;
    uint64_t stride = 4;
    for (int i = 0; i < 5; ++i) {
        dims[i] = h[i], box[i] = h[5 + i], place.at[i] = h[10 + i], steps[i] = h[15 + i];
        stride *= dims[i];
        strides[i] = stride;
    }
    CUtensorMap map;
    if (encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, x, dims, strides, box, CUtensorMapSwizzle(swizzle), steps))
        return;
    const int shared = offset + words * 4;
    if (rank == 1) any_box_kernel<1><<<1, THREADS, shared, stream>>>(map, place, y, words, offset, bytes);
    if (rank == 2) any_box_kernel<2><<<1, THREADS, shared, stream>>>(map, place, y, words, offset, bytes);
    if (rank == 3) any_box_kernel<3><<<1, THREADS, shared, stream>>>(map, place, y, words, offset, bytes);
    if (rank == 4) any_box_kernel<4><<<1, THREADS, shared, stream>>>(map, place, y, words, offset, bytes);
    if (rank == 5) any_box_kernel<5><<<1, THREADS, shared, stream>>>(map, place, y, words, offset, bytes);
}

// ---- im2col: columns of pixels

template <int RANK>
DEVICE void load_pixels(void* to, const CUtensorMap* map, const int* at, const uint16_t* offset, uint64_t* bar) {
    if constexpr (RANK == 3)
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
            "%4}], [%5], {%6};" ::"r"(smem(to)),
            "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(smem(bar)), "h"(offset[0])
            : "memory");
    if constexpr (RANK == 4)
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
            "%4, %5}], [%6], {%7, %8};" ::"r"(smem(to)),
            "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(smem(bar)), "h"(offset[0]), "h"(offset[1])
            : "memory");
    if constexpr (RANK == 5)
        asm volatile(
            "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
            "%4, %5, %6}], [%7], {%8, %9, %10};" ::"r"(smem(to)),
            "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(smem(bar)), "h"(offset[0]),
            "h"(offset[1]), "h"(offset[2])
            : "memory");
}
struct Pixels {
    int at[5];
    uint16_t offset[3];
};
// A column into shared memory, as it stands there into y; STORES: by a copy of its own, without offsets.
template <int RANK, bool STORES>
__global__ void pixels_kernel(
    const __grid_constant__ CUtensorMap map, const __grid_constant__ CUtensorMap out, Pixels place, float* y,
    int words) {
    extern __shared__ __align__(1024) char tile[];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) {
        initialise(&bar, 1);
        expect(&bar, words * 4);
        load_pixels<RANK>(tile, &map, place.at, place.offset, &bar);  // pixels_load
    }
    __syncthreads();
    wait(&bar, 0);
    for (int i = threadIdx.x; i < words && !STORES; i += THREADS) y[i] = reinterpret_cast<float*>(tile)[i];
    if (!STORES || threadIdx.x != 0) return;
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
            &out),
        "r"(place.at[0]), "r"(place.at[1]), "r"(place.at[2]), "r"(place.at[3]), "r"(smem(tile))  // pixels_store
        : "memory");
    commit_stores();
    wait_read();
}
KATA_EXPORT void pixels(
    const float* x, float* y, int d0, int d1, int d2, int d3, int d4, int l0, int l1, int l2, int u0, int u1, int u2,
    int s0, int s1, int s2, int s3, int s4, int o0, int o1, int o2, int e1, int e2, int e3, int rank, int channels,
    int column, int swizzle, int stores, cudaStream_t stream) {
    const uint64_t dims[] = {uint64_t(d0), uint64_t(d1), uint64_t(d2), uint64_t(d3), uint64_t(d4)};
    const int lower[] = {l0, l1, l2}, upper[] = {u0, u1, u2};
    const uint32_t steps[] = {1, uint32_t(e1), uint32_t(e2), uint32_t(e3), 1};
    uint64_t strides[5], stride = 4;
    for (int i = 0; i < 5; ++i) strides[i] = stride *= dims[i];
    const Pixels place = {{s0, s1, s2, s3, s4}, {uint16_t(o0), uint16_t(o1), uint16_t(o2)}};
    CUtensorMap map, out;
    const CUtensorMapSwizzle mode = CUtensorMapSwizzle(swizzle);
    encode_pixels(&map, rank, x, dims, strides, lower, upper, channels, column, mode, steps);
    encode_pixels(&out, rank, y, dims, strides, lower, upper, channels, column, mode, steps);
    const int words = channels * column, bytes = words * 4 + 1024;
    if (rank == 3) pixels_kernel<3, false><<<1, THREADS, bytes, stream>>>(map, out, place, y, words);
    if (rank == 4 && !stores) pixels_kernel<4, false><<<1, THREADS, bytes, stream>>>(map, out, place, y, words);
    if (rank == 4 && stores) pixels_kernel<4, true><<<1, THREADS, bytes, stream>>>(map, out, place, y, words);
    if (rank == 5) pixels_kernel<5, false><<<1, THREADS, bytes, stream>>>(map, out, place, y, words);
}
// An instruction of one mode by a map of the other.
KATA_EXPORT void pixels_by_tiles(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    const uint64_t dims[] = {uint64_t(columns), uint64_t(rows), 1};
    const uint64_t strides[] = {uint64_t(columns) * 4, uint64_t(columns) * rows * 4};
    const uint32_t box[] = {COLUMNS, ROWS, 1};
    CUtensorMap map;
    encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, x, dims, strides, box);
    pixels_kernel<3, false><<<1, THREADS, TILE * 4, stream>>>(map, map, Pixels(), y, TILE);
}

// ---- tiles of a matrix, in and out

enum Fault {
    NONE,
    NO_FENCE,           // between what threads wrote and the store that reads it
    LEADER_FENCES,      // before the barrier, for itself alone
    NO_WAIT,            // for the load
    REUSED,             // before the store has read the tile
    OTHER_COMMITS,      // not the thread that stored
    NO_END,             // exits before the store has read the tile
    LESS_EXPECTED,      // than the box has at an edge
    ONE_EXPECTED,       // of two copies
    WRITES_THEN_LOADS,  // without a fence between
    SHIFTED,            // the tile to 64 bytes past a multiple of 128
    READS_BACK,         // what the store has only read so far
    LEFT_OF,            // the tensor begins the store
    LANE_COMMITS,       // lane 0, for what the elected lane stored
    WARP_STORES,        // all lanes of the first warp, which is right
    ONE_WAITS,          // of the lanes that have stored
    WARPS_STORE,        // those of both warps
};

// Each block copies tiles of its rows times two; columns need not be a multiple of a tile's.
template <Fault FAULT>
__global__ void double_kernel(
    const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out, float* y, int columns) {
    __shared__ alignas(1024) float tile[TILE + 32], doubled[TILE];
    __shared__ uint64_t bar;
    const int tid = threadIdx.x, row = blockIdx.x * ROWS;
    float* to = tile + (FAULT == SHIFTED ? 16 : 0);
    const bool waits = tid == 0 || FAULT == WARPS_STORE || (FAULT == WARP_STORES && tid < 32);
    if (tid == 0) {
        initialise(&bar, 1);
        fence_initialised();
    }
    __syncthreads();
    if (FAULT == WRITES_THEN_LOADS) {
        for (int i = tid; i < TILE; i += THREADS) tile[i] = 0;
        __syncthreads();
    }
    for (int c = 0, k = 0; c < columns; c += COLUMNS, ++k) {
        if (tid == 0) {
            const int there = columns - c < COLUMNS ? columns - c : COLUMNS;
            expect(&bar, 4 * ROWS * (FAULT == LESS_EXPECTED ? there : COLUMNS));  // double_expect
            load_box(to, &in, c, row, &bar);                                      // double_load
            if (FAULT == ONE_EXPECTED) load_box(doubled, &in, c, row, &bar);
        }
        if (FAULT != NO_WAIT) wait(&bar, k % 2);
        if (FAULT != REUSED) {
            if (waits) wait_read();
            __syncthreads();
        }
        for (int i = tid; i < TILE; i += THREADS) doubled[i] = 2 * to[i];  // double_tile
        if (FAULT != NO_FENCE && (FAULT != LEADER_FENCES || tid == 0)) fence_proxy();
        __syncthreads();
        const bool warp = FAULT == WARPS_STORE || ((FAULT == WARP_STORES || FAULT == ONE_WAITS) && tid < 32);
        const bool stores = FAULT == LANE_COMMITS ? tid < 32 && elected() : tid == 0 || warp;
        if (stores) store_box(&out, FAULT == LEFT_OF ? c - 4 : c, row, doubled);  // double_store
        if (tid == (FAULT == OTHER_COMMITS ? 1 : 0) || warp) commit_stores();
    }
    if (waits && FAULT != NO_END) wait_read();
    if (FAULT == READS_BACK && tid == 0) y[row * columns] += 1;  // double_back
}
template <Fault FAULT>
void twice(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    const CUtensorMap in = float_map(x, rows, columns, ROWS, COLUMNS), out = float_map(y, rows, columns, ROWS, COLUMNS);
    double_kernel<FAULT><<<(rows + ROWS - 1) / ROWS, THREADS, 0, stream>>>(in, out, y, columns);
}
#define DOUBLE(name, fault)                                                                       \
    KATA_EXPORT void name(const float* x, float* y, int rows, int columns, cudaStream_t stream) { \
        twice<fault>(x, y, rows, columns, stream);                                                \
    }
DOUBLE(sound, NONE)
DOUBLE(no_fence, NO_FENCE)
DOUBLE(leader_fences, LEADER_FENCES)
DOUBLE(no_wait, NO_WAIT)
DOUBLE(reused, REUSED)
DOUBLE(other_commits, OTHER_COMMITS)
DOUBLE(no_end, NO_END)
DOUBLE(less_expected, LESS_EXPECTED)
DOUBLE(one_expected, ONE_EXPECTED)
DOUBLE(writes_then_loads, WRITES_THEN_LOADS)
DOUBLE(shifted, SHIFTED)
DOUBLE(reads_back, READS_BACK)
DOUBLE(left_of, LEFT_OF)
DOUBLE(lane_commits, LANE_COMMITS)
DOUBLE(warp_stores, WARP_STORES)
DOUBLE(one_waits, ONE_WAITS)
DOUBLE(warps_store, WARPS_STORE)

// ---- maps that are wrong

__global__ void copied_map_kernel(CUtensorMap map, float* y, int spoil) {
    __shared__ alignas(128) float tile[TILE];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) {
        if (spoil) reinterpret_cast<volatile int*>(&map)[40] = spoil;
        initialise(&bar, 1);
        expect(&bar, sizeof tile);
        load_box(tile, &map, 0, 0, &bar);  // copied_map
    }
    __syncthreads();
    wait(&bar, 0);
    y[threadIdx.x] = tile[threadIdx.x];
}
__global__ void one_box_kernel(const __grid_constant__ CUtensorMap map, float* y, int bytes) {
    __shared__ alignas(1024) float tile[2 * TILE];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) {
        initialise(&bar, 1);
        expect(&bar, bytes);
        load_box(tile, &map, 0, 0, &bar);  // one_box
    }
    __syncthreads();
    wait(&bar, 0);
    y[threadIdx.x] = tile[threadIdx.x];
}
__global__ void pointer_kernel(const CUtensorMap* map, float* y) {
    __shared__ alignas(1024) float tile[TILE];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) {
        initialise(&bar, 1);
        expect(&bar, sizeof tile);
        load_box(tile, map, 0, 0, &bar);  // pointer
    }
    __syncthreads();
    wait(&bar, 0);
    y[threadIdx.x] = tile[threadIdx.x];
}
KATA_EXPORT void copied_map(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    copied_map_kernel<<<1, THREADS, 0, stream>>>(float_map(x, rows, columns, ROWS, COLUMNS), y, rows == -1);
}
KATA_EXPORT void wide_box(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    one_box_kernel<<<1, THREADS, 0, stream>>>(
        float_map(x, rows, columns, ROWS, 64, CU_TENSOR_MAP_SWIZZLE_128B), y, ROWS * 64 * 4);
}
KATA_EXPORT void stride_in_elements(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    CUtensorMap map;
    const uint64_t dims[] = {uint64_t(columns), uint64_t(rows)}, strides[] = {uint64_t(columns + 1)};
    const uint32_t box[] = {COLUMNS, ROWS};
    encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, x, dims, strides, box);
    one_box_kernel<<<1, THREADS, 0, stream>>>(map, y, TILE * 4);
}
// The map says more of x than x has.
KATA_EXPORT void too_tall(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    one_box_kernel<<<1, THREADS, 0, stream>>>(float_map(x, rows * 4, columns, ROWS, COLUMNS), y, TILE * 4);
}
KATA_EXPORT void no_map(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    pointer_kernel<<<1, THREADS, 0, stream>>>(reinterpret_cast<const CUtensorMap*>(x), y);
}
KATA_EXPORT void host_map(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    static CUtensorMap map;
    map = float_map(x, rows, columns, ROWS, COLUMNS);
    pointer_kernel<<<1, THREADS, 0, stream>>>(&map, y);
}
// Its dimensions stand outermost first.
KATA_EXPORT void swapped_dims(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    CUtensorMap in;
    const uint64_t dims[] = {uint64_t(rows), uint64_t(columns)}, strides[] = {uint64_t(columns) * 4};
    const uint32_t box[] = {COLUMNS, ROWS};
    encode(&in, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, x, dims, strides, box);
    double_kernel<NONE>
        <<<(rows + ROWS - 1) / ROWS, THREADS, 0, stream>>>(in, float_map(y, rows, columns, ROWS, COLUMNS), y, columns);
}
__constant__ CUtensorMap constant_map;
__global__ void constant_map_kernel(float* y) {
    __shared__ alignas(1024) float tile[TILE];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) {
        initialise(&bar, 1);
        load_box(tile, &constant_map, 0, 0, &bar);  // before the barrier is told of it
        expect(&bar, sizeof tile);
    }
    __syncthreads();
    wait(&bar, 0);
    for (int i = threadIdx.x; i < TILE; i += THREADS) y[i] = tile[i];
}
KATA_EXPORT void constant(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    const CUtensorMap map = float_map(x, rows, columns, ROWS, COLUMNS);
    cudaMemcpyToSymbol(constant_map, &map, sizeof map);
    constant_map_kernel<<<1, THREADS, 0, stream>>>(y);
}

// ---- a swizzled tile that does not begin where its pattern begins, read by threads

template <bool BY_ADDRESS, int OFFSET>
__global__ void swizzled_kernel(const __grid_constant__ CUtensorMap in, float* y) {
    __shared__ alignas(1024) char memory[OFFSET + TILE * 4];
    __shared__ uint64_t bar;
    const int row = blockIdx.x * ROWS;
    if (threadIdx.x == 0) {
        initialise(&bar, 1);
        expect(&bar, TILE * 4);
        load_box(memory + OFFSET, &in, 0, row, &bar);
    }
    __syncthreads();
    wait(&bar, 0);
    for (int i = threadIdx.x; i < TILE; i += THREADS) {
        const uint32_t at = i * 4 + (BY_ADDRESS ? smem(memory + OFFSET) : 0);
        const uint32_t swizzled = at ^ (at >> 3 & 0x70);
        const uint32_t place = swizzled - (BY_ADDRESS ? smem(memory) : 0) + (BY_ADDRESS ? 0 : OFFSET);
        y[row * COLUMNS + i] = *reinterpret_cast<const float*>(memory + place);
    }
}
template <bool BY_ADDRESS, int OFFSET>
void swizzled(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    swizzled_kernel<BY_ADDRESS, OFFSET><<<rows / ROWS, THREADS, 0, stream>>>(
        float_map(x, rows, columns, ROWS, COLUMNS, CU_TENSOR_MAP_SWIZZLE_128B), y);
}
KATA_EXPORT void swizzled_by_address(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    swizzled<true, 512>(x, y, rows, columns, stream);
}
KATA_EXPORT void swizzled_by_offset(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    swizzled<false, 128>(x, y, rows, columns, stream);
}

// ---- a ring of stages with a producer warp; y gets the sum of each column

constexpr int STAGES = 2;
template <int EMPTY_COUNT, int FIRST_PARITY, bool RELEASES_LATE>
__global__ void ring_kernel(const __grid_constant__ CUtensorMap in, float* y, int rows) {
    __shared__ alignas(128) float tile[STAGES][TILE];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    const int tid = threadIdx.x, tiles = rows / ROWS;
    if (tid == 0) {
        for (int s = 0; s < STAGES; ++s) {
            initialise(&full[s], 1);
            initialise(&empty[s], EMPTY_COUNT);  // ring_init_empty
        }
        fence_initialised();
    }
    __syncthreads();
    if (tid < 32) {
        if (elected()) {
            for (int i = 0; i < tiles; ++i) {
                const int s = i % STAGES;
                wait(&empty[s], (i / STAGES & 1) ^ FIRST_PARITY);  // ring_empty
                expect(&full[s], TILE * 4);                        // ring_expect
                load_box(tile[s], &in, 0, i * ROWS, &full[s]);     // ring_load
            }
        }
        return;
    }
    float sum = 0;
    const int column = (tid - 32) % COLUMNS;
    for (int i = 0; i < tiles; ++i) {
        const int s = i % STAGES;
        wait(&full[s], i / STAGES & 1);                                       // ring_full
        if (!RELEASES_LATE && tid % 32 == 0) arrive(&empty[s]);               // ring_early
        for (int r = 0; r < ROWS; ++r) sum += tile[s][r * COLUMNS + column];  // ring_read
        __syncwarp();
        if (RELEASES_LATE && tid % 32 == 0) arrive(&empty[s]);  // ring_late
    }
    if (tid < 64) y[column] = sum;
}
template <int EMPTY_COUNT, int FIRST_PARITY, bool RELEASES_LATE>
void ring(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    ring_kernel<EMPTY_COUNT, FIRST_PARITY, RELEASES_LATE>
        <<<1, THREADS, 0, stream>>>(float_map(x, rows, columns, ROWS, COLUMNS), y, rows);
}
#define RING(name, ...)                                                                           \
    KATA_EXPORT void name(const float* x, float* y, int rows, int columns, cudaStream_t stream) { \
        ring<__VA_ARGS__>(x, y, rows, columns, stream);                                           \
    }
RING(ring_sound, 3, 1, true)
RING(ring_waits_first, 3, 0, true)
RING(ring_counts_threads, 96, 1, true)
RING(ring_counts_one, 1, 1, true)
RING(ring_released_early, 3, 1, false)

// ---- a store at the edge: only what lies in the tensor is written to the tile

template <int MISSING>
__global__ void edge_kernel(const __grid_constant__ CUtensorMap out, int columns) {
    __shared__ alignas(128) float tile[TILE];
    const int tid = threadIdx.x, inside = columns - COLUMNS - MISSING;
    for (int i = tid; i < TILE; i += THREADS)
        if (i % COLUMNS < inside) tile[i] = i + 1;
    fence_proxy();
    __syncthreads();
    if (tid != 0) return;
    store_box(&out, COLUMNS, 0, tile);  // edge_store
    commit_stores();
    wait_read();
}
template <int MISSING>
void edge_of(float* y, int rows, int columns, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, size_t(rows) * columns * 4, stream);
    edge_kernel<MISSING><<<1, THREADS, 0, stream>>>(float_map(y, rows, columns, ROWS, COLUMNS), columns);
}
KATA_EXPORT void edge(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    edge_of<0>(y, rows, columns, stream);
}
KATA_EXPORT void edge_missing(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    edge_of<1>(y, rows, columns, stream);
}

// ---- reductions: every block adds its tile to the same place

__global__ void add_kernel(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[TILE];
    __shared__ uint64_t bar;
    if (threadIdx.x != 0) return;
    initialise(&bar, 1);
    expect(&bar, sizeof tile);
    load_box(tile, &in, 0, blockIdx.x * ROWS, &bar);
    wait(&bar, 0);
    add_box(&out, 0, 0, tile);
    commit_stores();
    wait_read();
}
KATA_EXPORT void add(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, size_t(rows) * columns * 4, stream);
    add_kernel<<<rows / ROWS, 32, 0, stream>>>(
        float_map(x, rows, columns, ROWS, COLUMNS), float_map(y, rows, columns, ROWS, COLUMNS));
}
