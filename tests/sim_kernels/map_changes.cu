// Tensor maps that a kernel changes: one block per group of rows, each group with a size, a stride and a place of its
// own.
#include "hopper.cuh"

constexpr int ROWS = 16, COLUMNS = 32, TILE = ROWS * COLUMNS, THREADS = 64, MAP_BYTES = 128;

enum Fault {
    NONE,
    NO_ACQUIRE,
    ACQUIRED_BEFORE,   // the change
    CHANGED_AGAIN,     // after the acquire
    NOT_COPIED,        // the map stays in shared memory
    STRIDE_OF_FLOATS,  // in elements
    NO_MAP,            // the bytes in shared memory are something else
    SIX_DIMENSIONS,
    OTHER_PLACES,  // each lane copies to one of its own
    SHIFTED,       // the map in shared memory, by 64 bytes
    OTHERS_TOO,    // are acquired: what is in shared memory, and nothing at all
};

// ---- fields; `map` is a generic address, and each function takes the state space that is in its name

DEVICE void set_address_shared(void* map, const void* value) {
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(smem(map)), "l"(value)
                 : "memory");
}
DEVICE void set_address_global(void* map, const void* value) {
    asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(map), "l"(value) : "memory");
}
DEVICE void set_address(void* map, const void* value) {
    asm volatile("tensormap.replace.tile.global_address.b1024.b64 [%0], %1;" ::"l"(map), "l"(value) : "memory");
}
DEVICE void set_stride(void* map, uint64_t bytes) {  // of dimension 1
    asm volatile("tensormap.replace.tile.global_stride.b1024.b64 [%0], 0, %1;" ::"l"(map), "l"(bytes) : "memory");
}
DEVICE void set_rank(void* map, uint32_t rank) {
    asm volatile("tensormap.replace.tile.rank.b1024.b32 [%0], %1;" ::"l"(map), "r"(rank - 1) : "memory");  // set_rank
}
template <int DIMENSION>
DEVICE void set_size(void* map, uint32_t value) {
    asm volatile("tensormap.replace.tile.global_dim.b1024.b32 [%0], %2, %1;" ::"l"(map), "r"(value), "n"(DIMENSION)
                 : "memory");
}
template <int DIMENSION>
DEVICE void set_box(void* map, uint32_t value) {
    asm volatile("tensormap.replace.tile.box_dim.b1024.b32 [%0], %2, %1;" ::"l"(map), "r"(value), "n"(DIMENSION)
                 : "memory");
}
template <int DIMENSION>
DEVICE void set_step(void* map, uint32_t value) {
    asm volatile("tensormap.replace.tile.element_stride.b1024.b32 [%0], %2, %1;" ::"l"(map), "r"(value), "n"(DIMENSION)
                 : "memory");
}
// f32, no interleaving, the 128-byte swizzle, zeros outside
DEVICE void set_modes(void* map) {
    asm volatile("tensormap.replace.tile.elemtype.b1024.b32 [%0], 7;" ::"l"(map) : "memory");
    asm volatile("tensormap.replace.tile.interleave_layout.b1024.b32 [%0], 0;" ::"l"(map) : "memory");
    asm volatile("tensormap.replace.tile.swizzle_mode.b1024.b32 [%0], 3;" ::"l"(map) : "memory");
    asm volatile("tensormap.replace.tile.fill_mode.b1024.b32 [%0], 0;" ::"l"(map) : "memory");
}
DEVICE void copy_and_release(void* to, const void* from) {
    asm volatile(
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(
            to),
        "r"(smem(from))
        : "memory");
}
DEVICE void release() {
    asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}
DEVICE void acquire(const void* map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

// ---- y = the first 16 rows and 32 columns of each group, zeros where it has fewer

// What group g has: rows, columns, and how many floats come before it.
DEVICE int rows_of(int g) {
    return 5 + 7 * g;
}
DEVICE int columns_of(int g) {
    return 40 - 8 * g;
}
DEVICE int before(int g) {
    int floats = 0;
    for (int i = 0; i < g; ++i) floats += rows_of(i) * columns_of(i);
    return floats;
}
DEVICE void take_tile(float* y, float* tile, uint64_t* bar, const CUtensorMap* map) {
    if (threadIdx.x == 0) {
        expect(bar, TILE * sizeof(float));
        load_box(tile, map, 0, 0, bar);  // take
    }
    wait(bar, 0);
    for (int i = threadIdx.x; i < TILE; i += THREADS) {
        const int row = i / COLUMNS, chunk = i % COLUMNS / 4 ^ row % 8;
        y[blockIdx.x * TILE + i] = tile[row * COLUMNS + chunk * 4 + i % 4];
    }
}
DEVICE void initialise_one(uint64_t* bar) {
    if (threadIdx.x == 0) {
        initialise(bar, 1);
        fence_initialised();
    }
}

// The parameter's map with another address, sizes and stride; the first warp does it.
template <Fault FAULT>
__global__ void replaced_kernel(
    const __grid_constant__ CUtensorMap given, const float* x, float* y, CUtensorMap* maps) {
    __shared__ alignas(1024) float tile[TILE];
    __shared__ alignas(128) unsigned char memory[2 * MAP_BYTES];
    __shared__ uint64_t bar;
    const int g = blockIdx.x;
    unsigned char* mine = memory + (FAULT == SHIFTED ? 64 : 0);
    initialise_one(&bar);
    if (threadIdx.x < 32) {
        if (FAULT == ACQUIRED_BEFORE) acquire(maps + g);
        const int* words = reinterpret_cast<const int*>(&given);
        reinterpret_cast<int*>(mine)[threadIdx.x] = FAULT == NO_MAP ? 7 : words[threadIdx.x];
        __syncwarp();
        if (threadIdx.x == 0) {
            set_address_shared(mine, x + before(g));  // replaces
            set_size<0>(mine, columns_of(g));
            set_size<1>(mine, rows_of(g));
            set_stride(mine, columns_of(g) * (FAULT == STRIDE_OF_FLOATS ? 1 : 4));
            if (FAULT == SIX_DIMENSIONS) set_rank(mine, 6);
        }
        __syncwarp();
        copy_and_release(FAULT == OTHER_PLACES ? maps + threadIdx.x : maps + g, mine);  // copies
        if (FAULT == OTHERS_TOO) acquire(mine), acquire(nullptr);
        if (FAULT != NO_ACQUIRE && FAULT != ACQUIRED_BEFORE) acquire(maps + g);
        if (FAULT == CHANGED_AGAIN && threadIdx.x == 0) set_address_global(maps + g, x);
    }
    __syncthreads();
    take_tile(y, tile, &bar, FAULT == NOT_COPIED ? reinterpret_cast<const CUtensorMap*>(mine) : maps + g);
}

// A map made of zeros in shared memory.
__global__ void made_kernel(const float* x, float* y, CUtensorMap* maps) {
    __shared__ alignas(1024) float tile[TILE];
    __shared__ alignas(128) int mine[MAP_BYTES / 4];
    __shared__ uint64_t bar;
    const int g = blockIdx.x;
    initialise_one(&bar);
    if (threadIdx.x < 32) {
        mine[threadIdx.x] = 0;
        __syncwarp();
        if (threadIdx.x == 0) {
            set_address(mine, x + before(g));
            set_rank(mine, 2);
            set_box<0>(mine, COLUMNS);
            set_box<1>(mine, ROWS);
            set_size<0>(mine, columns_of(g));
            set_size<1>(mine, rows_of(g));
            set_stride(mine, columns_of(g) * 4);
            set_step<0>(mine, 1);
            set_step<1>(mine, 1);
            set_modes(mine);
        }
        __syncwarp();
        copy_and_release(maps + g, mine);
        acquire(maps + g);
    }
    __syncthreads();
    take_tile(y, tile, &bar, maps + g);
}

// Copied by one thread's stores, and changed where it is taken from; a fence releases it.
__global__ void stored_kernel(const __grid_constant__ CUtensorMap given, const float* x, float* y, CUtensorMap* maps) {
    __shared__ alignas(1024) float tile[TILE];
    __shared__ uint64_t bar;
    const int g = blockIdx.x;
    initialise_one(&bar);
    if (threadIdx.x == 0) {
        maps[g] = given;
        set_address_global(maps + g, x + before(g));
        set_size<0>(maps + g, columns_of(g));
        set_size<1>(maps + g, rows_of(g));
        set_stride(maps + g, columns_of(g) * 4);
        release();
        acquire(maps + g);
    }
    __syncthreads();
    take_tile(y, tile, &bar, maps + g);
}

// What a launch before has made must be acquired, too.
template <bool ACQUIRES>
__global__ void taken_kernel(float* y, CUtensorMap* maps) {
    __shared__ alignas(1024) float tile[TILE];
    __shared__ uint64_t bar;
    initialise_one(&bar);
    if (ACQUIRES && threadIdx.x == 32) acquire(maps + blockIdx.x);
    __syncthreads();
    take_tile(y, tile, &bar, maps + blockIdx.x);
}

struct Maps {
    CUtensorMap* all = nullptr;
    cudaStream_t stream;
    Maps(int groups, cudaStream_t s) : stream(s) { cudaMallocAsync(&all, (groups + 32) * sizeof *all, stream); }
    ~Maps() { cudaFreeAsync(all, stream); }
};
inline CUtensorMap first_map(const float* x) {
    return float_map(x, ROWS, COLUMNS, ROWS, COLUMNS, CU_TENSOR_MAP_SWIZZLE_128B);
}
template <Fault FAULT>
void replaced_maps(const float* x, float* y, int groups, cudaStream_t stream) {
    const Maps maps(groups, stream);
    replaced_kernel<FAULT><<<groups, THREADS, 0, stream>>>(first_map(x), x, y, maps.all);
}
#define REPLACED(name, fault)                                                          \
    KATA_EXPORT void name(const float* x, float* y, int groups, cudaStream_t stream) { \
        replaced_maps<fault>(x, y, groups, stream);                                    \
    }
REPLACED(replaced, NONE)
REPLACED(no_acquire, NO_ACQUIRE)
REPLACED(acquired_before, ACQUIRED_BEFORE)
REPLACED(changed_again, CHANGED_AGAIN)
REPLACED(not_copied, NOT_COPIED)
REPLACED(stride_of_floats, STRIDE_OF_FLOATS)
REPLACED(no_map, NO_MAP)
REPLACED(six_dimensions, SIX_DIMENSIONS)
REPLACED(other_places, OTHER_PLACES)
REPLACED(shifted, SHIFTED)
REPLACED(others_too, OTHERS_TOO)

KATA_EXPORT void made(const float* x, float* y, int groups, cudaStream_t stream) {
    const Maps maps(groups, stream);
    made_kernel<<<groups, THREADS, 0, stream>>>(x, y, maps.all);
}
KATA_EXPORT void stored(const float* x, float* y, int groups, cudaStream_t stream) {
    const Maps maps(groups, stream);
    stored_kernel<<<groups, THREADS, 0, stream>>>(first_map(x), x, y, maps.all);
}
template <bool ACQUIRES>
void made_before(const float* x, float* y, int groups, cudaStream_t stream) {
    const Maps maps(groups, stream);
    stored_kernel<<<groups, THREADS, 0, stream>>>(first_map(x), x, y, maps.all);
    taken_kernel<ACQUIRES><<<groups, THREADS, 0, stream>>>(y, maps.all);
}
KATA_EXPORT void launch_before(const float* x, float* y, int groups, cudaStream_t stream) {
    made_before<true>(x, y, groups, stream);
}
KATA_EXPORT void launch_before_no_acquire(const float* x, float* y, int groups, cudaStream_t stream) {
    made_before<false>(x, y, groups, stream);
}
