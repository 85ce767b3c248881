// Products as GEMM libraries for sm_90 build them, and what goes wrong only in them (sm_90a): fp8 with scales of blocks,
// a tutorial's loop whose consumers also copy, a collective with a matrix that is added.
#include "hopper.cuh"
#include <cuda_fp16.h>

constexpr int GROUP = 128, WARP = 32;  // threads of a warpgroup, of a warp

// Where element i of a thread's part of an accumulator of 64 rows is.
DEVICE int row_of(int i) {
    return threadIdx.x % GROUP / WARP * 16 + threadIdx.x % WARP / 4 + i / 2 % 2 * 8;
}
DEVICE int column_of(int i) {
    return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
}
DEVICE uint32_t packed(float low, float high) {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
}
template <int REGISTERS>
DEVICE void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// One of a ring's stages, and how often the ring has been gone round: both sides count for themselves.
struct Turn {
    int stages, stage = 0;
    uint32_t lap = 0;
    DEVICE void next() {
        if (++stage == stages) stage = 0, lap ^= 1;
    }
    DEVICE bool filled() const { return lap; }    // the parity of the full barrier
    DEVICE bool emptied() const { return !lap; }  // of the empty one; at first it lets pass
};

// ---- c = (a scaled by rows and steps) (b scaled by blocks)': fp8 operands, sums kept in f32 from step to step

constexpr int TALL = 128, WIDE = 64, DEEP = 128;  // a tile of c, and bytes of a row of a step
constexpr int DEPTH = 3, PAIR = 2;                // stages; blocks of a cluster, which share the tile of b
constexpr int A_BYTES = TALL * DEEP, B_BYTES = WIDE * DEEP, S_BYTES = TALL * int(sizeof(float)),
              C_BYTES = TALL * WIDE * 2;
constexpr int MATH = 2 * GROUP;  // threads that multiply; one more warpgroup copies

enum Scaled {
    SCALED,
    NO_LANE_ORDER,    // between lanes that read scales and the one that gives the stage back
    LEAVES_EARLY,     // before the last store has read its tile
    ELECTED_ADDRESS,  // the tile of the store, by what the elected lane holds
    KEEPS_LAST_LAP,   // the blocks do not wait for each other's last arrivals
};

// d = a b + d, of 64 x 64 by 32 bytes
DEVICE void multiply_bytes(float (&d)[32], uint64_t a, uint64_t b, int adds) {
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %34, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, "
        "1, 1;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(adds));
}

struct Stages {  // of the scaled product, and its tile of c
    alignas(1024) unsigned char a[DEPTH][A_BYTES];
    unsigned char b[DEPTH][B_BYTES];
    unsigned char c[C_BYTES];
    float scales[DEPTH][TALL];  // of the rows of a
    uint64_t full[DEPTH], empty[DEPTH];
};

struct ScaledMaps {
    CUtensorMap a, b, scales, c;
};

// Tiles go to clusters in turn; the blocks of a cluster take tiles that stand one below the other.
struct Tiles {
    int wide, count, at;
    DEVICE Tiles(int m, int n) : wide(n / WIDE), count(m / TALL / PAIR * wide), at(blockIdx.x / PAIR) {}
    DEVICE bool any() const { return at < count; }
    DEVICE void next() { at += gridDim.x / PAIR; }
    DEVICE int row() const { return (at / wide * PAIR + int(rank())) * TALL; }
    DEVICE int column() const { return at % wide * WIDE; }
};

template <Scaled FAULT>
DEVICE void copy_steps(const ScaledMaps& maps, Stages& s, int m, int n, int steps) {
    Turn turn{DEPTH};
    for (Tiles tile(m, n); tile.any(); tile.next()) {
        for (int step = 0; step < steps; ++step, turn.next()) {
            uint64_t* bar = &s.full[turn.stage];
            const int half = int(rank()) * WIDE / PAIR;
            wait(&s.empty[turn.stage], turn.emptied());
            load_box(s.a[turn.stage], &maps.a, step * DEEP, tile.row(), bar);
            load_box(s.scales[turn.stage], &maps.scales, tile.row(), step, bar);  // scales_load
            load_box_to(
                s.b[turn.stage] + half * DEEP, &maps.b, step * DEEP, tile.column() + half, bar, (1 << PAIR) - 1);
            expect(bar, A_BYTES + B_BYTES + S_BYTES);  // after the copies: it may be below zero for a while
        }
    }
    // Both blocks have arrived for each other's last time when a lap of empty stages has been waited for.
    for (int i = 0; FAULT != KEEPS_LAST_LAP && i < DEPTH; ++i, turn.next()) wait(&s.empty[turn.stage], turn.emptied());
}

template <Scaled FAULT>
DEVICE void multiply_scaled(const ScaledMaps& maps, Stages& s, const float* block_scales, int m, int n, int steps) {
    const int group = threadIdx.x / GROUP, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    Turn turn{DEPTH};
    for (Tiles tile(m, n); tile.any(); tile.next()) {
        float sums[32] = {};
        for (int step = 0; step < steps; ++step, turn.next()) {
            const float of_b = block_scales[tile.column() / DEEP * steps + step];
            float d[32];
            wait(&s.full[turn.stage], turn.filled());
            const float* of_rows = s.scales[turn.stage] + group * 64;
            const float above = of_rows[row_of(0)] * of_b, below = of_rows[row_of(2)] * of_b;  // scales_read
            const uint64_t a = descriptor(s.a[turn.stage] + group * 64 * DEEP, 16, 1024);
            const uint64_t b = descriptor(s.b[turn.stage], 16, 1024);
            warpgroup_fence();
            for (int k = 0; k < DEEP / 32; ++k) multiply_bytes(d, a + 2 * k, b + 2 * k, k > 0);
            warpgroup_commit();
            warpgroup_wait<0>();
            if (FAULT != NO_LANE_ORDER) __syncwarp();
            if (lane < PAIR) arrive_remote(&s.empty[turn.stage], lane);  // scaled_free
            for (int i = 0; i < 32; ++i) sums[i] += (i / 2 % 2 ? below : above) * d[i];
        }
        unsigned char* out = s.c + warp * 16 * WIDE * 2;  // the warp's 16 rows, which one of its threads stores
        const bool leads = FAULT == ELECTED_ADDRESS ? elected() : lane == 0;
        if (leads) wait_read();
        __syncwarp();
        for (int j = 0; j < WIDE / 16; ++j) {
            const int row = lane % 16, chunk = (2 * j + lane / 16) ^ row % 8;
            const uint32_t four[] = {
                packed(sums[8 * j], sums[8 * j + 1]), packed(sums[8 * j + 2], sums[8 * j + 3]),
                packed(sums[8 * j + 4], sums[8 * j + 5]), packed(sums[8 * j + 6], sums[8 * j + 7])};
            store_matrix(out + row * WIDE * 2 + chunk * 16, four);
        }
        fence_proxy();
        __syncwarp();
        if (leads) {
            unsigned char* from = out;
            if (FAULT == ELECTED_ADDRESS) from += lane / 4 * WIDE * 2 + lane % 4 * 4;  // of the lane's first element
            store_box(&maps.c, tile.column(), tile.row() + warp * 16, from);           // scaled_store
            commit_stores();
        }
        __syncwarp();
    }
    if (FAULT != LEAVES_EARLY) wait_read();
}

template <Scaled FAULT>
__global__ void __cluster_dims__(PAIR, 1, 1) __launch_bounds__(MATH + GROUP, 1)
    scaled_kernel(const __grid_constant__ ScaledMaps maps, const float* block_scales, int m, int n, int steps) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Stages& s = *reinterpret_cast<Stages*>(memory);
    if (threadIdx.x == 0) {
        for (int i = 0; i < DEPTH; ++i) {
            initialise(&s.full[i], 1);
            initialise(&s.empty[i], PAIR * MATH / WARP);
        }
        fence_initialised();
    }
    cluster_arrive_relaxed();
    cluster_wait();
    if (threadIdx.x < MATH) {
        take_registers<232>();
        multiply_scaled<FAULT>(maps, s, block_scales, m, n, steps);
    } else {
        give_registers<40>();
        if (threadIdx.x / WARP == MATH / WARP && elected()) copy_steps<FAULT>(maps, s, m, n, steps);
    }
}
template <Scaled FAULT>
void scaled(
    const void* a, const float* row_scales, const void* b, const float* block_scales, void* c, int m, int n, int k,
    cudaStream_t stream) {
    const auto bytes = [&](const void* base, int rows, int box) {
        return matrix_map(base, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, rows, k, box, DEEP, CU_TENSOR_MAP_SWIZZLE_128B);
    };
    const ScaledMaps maps = {
        bytes(a, m, TALL), bytes(b, n, WIDE / PAIR), float_map(row_scales, k / DEEP, m, 1, TALL),
        half_map(c, m, n, 16, WIDE)};
    cudaFuncSetAttribute(scaled_kernel<FAULT>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Stages)));
    scaled_kernel<FAULT><<<2 * PAIR, MATH + GROUP, sizeof(Stages), stream>>>(maps, block_scales, m, n, k / DEEP);
}
#define BLOCK_SCALED(name, fault)                                                                                \
    KATA_EXPORT void name(                                                                                       \
        const void* a, const float* row_scales, const void* b, const float* block_scales, void* c, int m, int n, \
        int k, cudaStream_t stream) {                                                                            \
        scaled<fault>(a, row_scales, b, block_scales, c, m, n, k, stream);                                       \
    }
BLOCK_SCALED(block_scaled, SCALED)
BLOCK_SCALED(scaled_no_lane_order, NO_LANE_ORDER)
BLOCK_SCALED(scaled_leaves_early, LEAVES_EARLY)
BLOCK_SCALED(scaled_elected_address, ELECTED_ADDRESS)
BLOCK_SCALED(scaled_keeps_last_lap, KEEPS_LAST_LAP)

// ---- c = a' b with sums in f16, columns of c one after the other: a tutorial's loop, without a producer of its own

constexpr int SIDE = 64, BOX = SIDE * SIDE, STAGES = 3;  // halves of a box of 64 x 64; a stage has two of a, one of b
constexpr int STAGE = 3 * BOX;

// d += a' b, of 64 x 64 by 16, packed sums; both operands with k as the slow dimension
DEVICE void multiply_packed(uint32_t (&d)[16], uint64_t a, uint64_t b, int adds) {
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %18, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15}, %16, %17, p, 1, 1, 1, 1;\n}"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]),
          "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15])
        : "l"(a), "l"(b), "r"(adds));
}
DEVICE void multiply_stage(uint32_t (&d)[2][16], const __half* stage) {
    for (int half = 0; half < 2; ++half)
        for (int k = 0; k < SIDE / 16; ++k) {
            const uint64_t a = descriptor(stage + half * BOX + k * 16 * SIDE, 8192, 1024);
            const uint64_t b = descriptor(stage + 2 * BOX + k * 16 * SIDE, 8192, 1024);
            multiply_packed(d[half], a, b, true);  // stage_read
        }
}
DEVICE void store_columns(__half* c, const uint32_t (&d)[2][16], int m) {
    for (int half = 0; half < 2; ++half)
        for (int i = 0; i < 16; ++i) {
            const __half2 two = *reinterpret_cast<const __half2*>(&d[half][i]);
            const int row = blockIdx.x * 2 * SIDE + half * SIDE + row_of(2 * i);
            const int column = blockIdx.y * SIDE + column_of(2 * i);
            c[column * m + row] = two.x;
            c[(column + 1) * m + row] = two.y;
        }
}

// All threads say that they have done with a stage; the lane that copies is one of them.
enum Inline {
    INLINE,
    FILLS_AT_ONCE,  // a stage that the products still read
};
template <Inline FAULT>
__global__ void __cluster_dims__(2, 1, 1) inline_kernel(
    const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, __half* c, int m, int k) {
    extern __shared__ __align__(1024) __half ring[];
    __shared__ uint64_t loaded[STAGES], done[STAGES];
    const bool copies = threadIdx.x < WARP && elected();
    const int row = blockIdx.x * 2 * SIDE, column = blockIdx.y * SIDE, steps = k / SIDE;
    if (copies)
        for (int i = 0; i < STAGES; ++i) {
            initialise(&loaded[i], 1);
            initialise(&done[i], GROUP);
        }
    cluster_sync();
    const auto fill = [&](int step) {
        __half* stage = ring + step % STAGES * STAGE;
        uint64_t* bar = &loaded[step % STAGES];
        expect(bar, STAGE * sizeof(__half));
        for (int half = 0; half < 2; ++half)
            load_box(stage + half * BOX, &a, row + half * SIDE, step * SIDE, bar);  // inline_load
        load_box(stage + 2 * BOX, &b, column, step * SIDE, bar);
    };
    if (copies)
        for (int i = 0; i < STAGES && i < steps; ++i) fill(i);
    uint32_t d[2][16] = {};
    for (int step = 0; step < steps; ++step) {
        wait(&loaded[step % STAGES], step / STAGES & 1);
        warpgroup_fence();
        multiply_stage(d, ring + step % STAGES * STAGE);
        warpgroup_commit();
        const bool more = copies && step + STAGES < steps;
        if (FAULT == FILLS_AT_ONCE && more) fill(step + STAGES);
        warpgroup_wait<0>();
        arrive(&done[step % STAGES]);
        if (FAULT == FILLS_AT_ONCE || !more) continue;
        wait(&done[step % STAGES], step / STAGES & 1);
        fill(step + STAGES);
    }
    store_columns(c, d, m);
}
template <Inline FAULT>
void inline_product(const void* a, const void* b, void* c, int m, int n, int k, cudaStream_t stream) {
    constexpr int BYTES = STAGES * STAGE * sizeof(__half);
    cudaFuncSetAttribute(inline_kernel<FAULT>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    inline_kernel<FAULT><<<dim3(m / SIDE / 2, n / SIDE), GROUP, BYTES, stream>>>(
        half_map(a, k, m, SIDE, SIDE), half_map(b, k, n, SIDE, SIDE), static_cast<__half*>(c), m, k);
}

// The same with cp.async, of which each thread waits for its own.
enum Threads {
    THREADS,
    NO_BARRIER,  // between the copies and the product
    NO_PROXY,    // no fence there
};
DEVICE void copy_async(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem(to)), "l"(from) : "memory");
}
template <Threads FAULT>
__global__ void threads_kernel(const __half* a, const __half* b, __half* c, int m, int n, int k) {
    extern __shared__ __align__(1024) __half ring[];
    const int row = blockIdx.x * 2 * SIDE, column = blockIdx.y * SIDE, steps = k / SIDE;
    const auto fill = [&](int step) {
        for (int i = threadIdx.x; step < steps && i < STAGE / 8; i += GROUP) {
            const int box = i / (BOX / 8), line = i % (BOX / 8) / 8, chunk = i % 8;
            const __half* from =
                box < 2 ? a + (step * SIDE + line) * m + row + box * SIDE : b + (step * SIDE + line) * n + column;
            __half* to = ring + step % STAGES * STAGE + box * BOX + line * SIDE + (chunk ^ line % 8) * 8;
            copy_async(to, from + chunk * 8);  // threads_copy
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int i = 0; i < STAGES - 1; ++i) fill(i);
    uint32_t d[2][16] = {};
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        if (FAULT != NO_PROXY) fence_proxy();
        if (FAULT != NO_BARRIER) __syncthreads();
        warpgroup_fence();
        multiply_stage(d, ring + step % STAGES * STAGE);
        warpgroup_commit();
        warpgroup_wait<0>();
        fill(step + STAGES - 1);
    }
    store_columns(c, d, m);
}
template <Threads FAULT>
void threads_product(const void* a, const void* b, void* c, int m, int n, int k, cudaStream_t stream) {
    constexpr int BYTES = STAGES * STAGE * sizeof(__half);
    cudaFuncSetAttribute(threads_kernel<FAULT>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    threads_kernel<FAULT><<<dim3(m / SIDE / 2, n / SIDE), GROUP, BYTES, stream>>>(
        static_cast<const __half*>(a), static_cast<const __half*>(b), static_cast<__half*>(c), m, n, k);
}
#define PRODUCT(name, function)                                                                              \
    KATA_EXPORT void name(const void* a, const void* b, void* c, int m, int n, int k, cudaStream_t stream) { \
        function(a, b, c, m, n, k, stream);                                                                  \
    }
PRODUCT(inline_copies, inline_product<INLINE>)
PRODUCT(inline_fills_at_once, inline_product<FILLS_AT_ONCE>)
PRODUCT(thread_copies, threads_product<THREADS>)
PRODUCT(threads_no_barrier, threads_product<NO_BARRIER>)
PRODUCT(threads_no_proxy, threads_product<NO_PROXY>)

// ---- d = a b' + c: one warp loads a and b, another one c, whose tile becomes that of d; a whole warp stores it

constexpr int SLOTS = 2, ROLES = 2 * GROUP;  // tiles of c; threads
constexpr int STORES = 1;                    // the named barrier before a store

enum Added {
    ADDED,
    FREES_AT_ONCE,      // the tile, before the store has read it
    LANES_DO_NOT_WAIT,  // the store's warp, but for its first lane's group
    FIRST_LANE_STORES,  // and another one commits
};
struct Slots {
    alignas(1024) __half a[STAGES][BOX];
    __half b[STAGES][BOX];
    __half tile[SLOTS][BOX];
    uint64_t full[STAGES], empty[STAGES], given[SLOTS], taken[SLOTS];
};
struct AddedMaps {
    CUtensorMap a, b, c, d;
};
template <Added FAULT>
DEVICE void add_tiles(const AddedMaps& maps, Slots& s, int tiles, int wide, int steps) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    Turn turn{STAGES}, slot{SLOTS};
    for (int t = blockIdx.x; t < tiles; t += gridDim.x, slot.next()) {
        float d[32];
        warpgroup_fence();
        for (int step = 0; step < steps; ++step, turn.next()) {
            wait(&s.full[turn.stage], turn.filled());
            const uint64_t a = descriptor(s.a[turn.stage], 16, 1024), b = descriptor(s.b[turn.stage], 16, 1024);
            for (int k = 0; k < SIDE / 16; ++k) multiply_64(d, a + 2 * k, b + 2 * k, step + k > 0);
            warpgroup_commit();
            warpgroup_wait<0>();
            __syncwarp();
            if (lane == 0) arrive(&s.empty[turn.stage]);
        }
        __half* tile = s.tile[slot.stage];
        wait(&s.given[slot.stage], slot.filled());
        for (int i = 0; i < 32; i += 2) {
            const int row = row_of(i), column = column_of(i), chunk = column / 8 ^ row % 8;
            __half2* two = reinterpret_cast<__half2*>(tile + row * SIDE + chunk * 8 + column % 8);
            const float2 c = __half22float2(*two);
            *two = __floats2half2_rn(c.x + d[i], c.y + d[i + 1]);  // added_write
        }
        fence_proxy();
        named_sync(STORES, GROUP);
        if (warp == 0) {
            if (FAULT != FIRST_LANE_STORES || lane == 0)
                store_box(&maps.d, t % wide * SIDE, t / wide * SIDE, tile);  // added_store
            if (FAULT != FIRST_LANE_STORES || lane == 1) commit_stores();
            if (FAULT != FREES_AT_ONCE && (FAULT != LANES_DO_NOT_WAIT || lane > 0)) wait_read();
            __syncwarp();
            if (lane == 0) arrive(&s.taken[slot.stage]);
        }
    }
    if (warp == 0) wait_read();
}
template <Added FAULT>
__global__ void added_kernel(const __grid_constant__ AddedMaps maps, int tiles, int wide, int steps) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Slots& s = *reinterpret_cast<Slots*>(memory);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            initialise(&s.full[i], 1);
            initialise(&s.empty[i], GROUP / WARP);
        }
        for (int i = 0; i < SLOTS; ++i) {
            initialise(&s.given[i], 1);
            initialise(&s.taken[i], 1);
        }
        fence_initialised();
    }
    __syncthreads();
    if (threadIdx.x < GROUP) return add_tiles<FAULT>(maps, s, tiles, wide, steps);
    const int warp = threadIdx.x / WARP - GROUP / WARP;
    constexpr int BYTES = BOX * sizeof(__half);
    if (warp == 0 && elected()) {
        Turn turn{STAGES};
        for (int t = blockIdx.x; t < tiles; t += gridDim.x)
            for (int step = 0; step < steps; ++step, turn.next()) {
                uint64_t* bar = &s.full[turn.stage];
                wait(&s.empty[turn.stage], turn.emptied());
                expect(bar, 2 * BYTES);
                load_box(s.a[turn.stage], &maps.a, step * SIDE, t / wide * SIDE, bar);
                load_box(s.b[turn.stage], &maps.b, step * SIDE, t % wide * SIDE, bar);
            }
    }
    if (warp == 2 && elected()) {
        Turn slot{SLOTS};
        for (int t = blockIdx.x; t < tiles; t += gridDim.x, slot.next()) {
            wait(&s.taken[slot.stage], slot.emptied());
            uint64_t* bar = &s.given[slot.stage];
            expect(bar, BYTES);
            load_box(s.tile[slot.stage], &maps.c, t % wide * SIDE, t / wide * SIDE, bar);  // added_load
        }
    }
}
template <Added FAULT>
void added(const void* a, const void* b, const void* c, void* d, int m, int n, int k, cudaStream_t stream) {
    const AddedMaps maps = {
        half_map(a, m, k, SIDE, SIDE), half_map(b, n, k, SIDE, SIDE), half_map(c, m, n, SIDE, SIDE),
        half_map(d, m, n, SIDE, SIDE)};
    cudaFuncSetAttribute(added_kernel<FAULT>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Slots)));
    added_kernel<FAULT><<<2, ROLES, sizeof(Slots), stream>>>(maps, m / SIDE * (n / SIDE), n / SIDE, k / SIDE);
}
#define SUM(name, fault)                                                                                  \
    KATA_EXPORT void name(                                                                                \
        const void* a, const void* b, const void* c, void* d, int m, int n, int k, cudaStream_t stream) { \
        added<fault>(a, b, c, d, m, n, k, stream);                                                        \
    }
SUM(added_tiles, ADDED)
SUM(added_frees_at_once, FREES_AT_ONCE)
SUM(added_lanes_do_not_wait, LANES_DO_NOT_WAIT)
SUM(added_first_lane_stores, FIRST_LANE_STORES)
