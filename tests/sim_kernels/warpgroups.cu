// wgmma: products of a warpgroup, their layouts and types, and what goes wrong around them (sm_90a).
#include "hopper.cuh"
#include <cuda_fp16.h>

constexpr int THREADS = 128, TILE = 64, STAGE = TILE * TILE;  // of halves

// Where an element of the accumulator of a 64-row product stands.
DEVICE int row_of(int i) {
    return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
}
DEVICE int column_of(int i) {
    return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
}
template <int N>
DEVICE void store_tile(float* y, int row, int column, int columns, const float (&d)[N]) {
    for (int i = 0; i < N; ++i) y[(row + row_of(i)) * columns + column + column_of(i)] = d[i];
}

// ---- c = a b' by TMA and a ring: a [m][k], b [n][k], 64 x 64 a block; one warpgroup multiplies, a warp feeds it

enum Fault {
    NONE,
    NO_WAIT,         // before the accumulators are read
    WAIT_ONE,        // where none may be left
    RELEASED_EARLY,  // stages, before their products are done
    ZEROED_LATE,     // accumulators, between the fence and the first product
    NO_FENCE,        // of wgmma
    THREE_WARPS,     // multiply
    ONE_WARP_WAITS,  // at the end
    LEFT_OUT,        // of a last wait is one warp
    WRONG_STRIDE,    // of the descriptors
    WRONG_STEP,      // along k
    NEVER_SET,       // are the accumulators
    OLD_PHASE,       // is waited for, of the first stage
};
constexpr int STAGES = 3;

template <Fault FAULT>
__global__ void ring_kernel(
    const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c, int columns, int depth) {
    extern __shared__ __align__(1024) __half tiles[];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    __half *tile_a = tiles, *tile_b = tiles + STAGES * STAGE;
    const int tid = threadIdx.x, row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    if (tid == 0) {
        for (int s = 0; s < STAGES; ++s) {
            initialise(&full[s], 1);
            initialise(&empty[s], 1);  // ring_init_empty
        }
        fence_initialised();
    }
    __syncthreads();
    if (tid >= THREADS) {
        if (tid == THREADS)
            for (int i = 0; i < depth / TILE; ++i) {
                const int s = i % STAGES;
                wait(&empty[s], (i / STAGES & 1) ^ 1);  // ring_wait_empty
                expect(&full[s], 2 * STAGE * 2);
                load_box(tile_a + s * STAGE, &a, i * TILE, row, &full[s]);  // ring_load_a
                load_box(tile_b + s * STAGE, &b, i * TILE, column, &full[s]);
            }
        return;
    }
    if (FAULT == THREE_WARPS && tid >= 96) return;
    float d[32];
    constexpr int STRIDE = FAULT == WRONG_STRIDE ? 128 : 1024;
    for (int i = 0; i < depth / TILE; ++i) {
        const int s = i % STAGES;
        wait(&full[s], i / STAGES & 1 ^ (FAULT == OLD_PHASE && i == STAGES));  // ring_wait_full
        if (FAULT != NO_FENCE) warpgroup_fence();
        if (FAULT == ZEROED_LATE && i == 0)   // ring_zero_if
            for (float& sum : d) sum = c[0];  // ring_zero
        for (int k = 0; k < TILE; k += 16) {
            const int step = FAULT == WRONG_STEP ? k * 4 : k * 2;  // in bytes
            const uint64_t left = descriptor(tile_a + s * STAGE, 16, STRIDE) + (step >> 4);
            const uint64_t right = descriptor(tile_b + s * STAGE, 16, STRIDE) + (step >> 4);
            multiply_64(d, left, right, i + k > 0 || FAULT == ZEROED_LATE || FAULT == NEVER_SET);  // ring_multiply
        }
        warpgroup_commit();
        if (FAULT == RELEASED_EARLY && tid == 0) arrive(&empty[s]);  // ring_early_arrival
        if (FAULT != NO_WAIT) warpgroup_wait<1>();                   // ring_wait
        // The product before this one is done.
        if (FAULT != RELEASED_EARLY && i > 0 && tid == 0) arrive(&empty[(i - 1) % STAGES]);
    }
    if (FAULT == ONE_WARP_WAITS ? tid < 32 : FAULT != WAIT_ONE && FAULT != NO_WAIT) warpgroup_wait<0>();
    for (int i = 0; i < 32; ++i) c[(row + row_of(i)) * columns + column + column_of(i)] = d[i];  // ring_read
    if (FAULT != LEFT_OUT || tid < 96) warpgroup_wait<0>();                                      // ring_last_wait
}
template <Fault FAULT>
void ring(const void* a, const void* b, float* c, int m, int n, int k, cudaStream_t stream) {
    constexpr int BYTES = 2 * STAGES * STAGE * 2;
    cudaFuncSetAttribute(ring_kernel<FAULT>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    ring_kernel<FAULT><<<dim3(n / TILE, m / TILE), THREADS + 32, BYTES, stream>>>(
        half_map(a, m, k, TILE, TILE), half_map(b, n, k, TILE, TILE), c, n, k);
}
#define RING(name, fault)                                                                                     \
    KATA_EXPORT void name(const void* a, const void* b, float* c, int m, int n, int k, cudaStream_t stream) { \
        ring<fault>(a, b, c, m, n, k, stream);                                                                \
    }
RING(ring, NONE)
RING(ring_no_wait, NO_WAIT)
RING(ring_wait_one, WAIT_ONE)
RING(ring_released_early, RELEASED_EARLY)
RING(ring_zeroed_late, ZEROED_LATE)
RING(ring_no_fence, NO_FENCE)
RING(ring_three_warps, THREE_WARPS)
RING(ring_one_warp_waits, ONE_WARP_WAITS)
RING(ring_left_out, LEFT_OUT)
RING(ring_wrong_stride, WRONG_STRIDE)
RING(ring_wrong_step, WRONG_STEP)
RING(ring_never_set, NEVER_SET)
RING(ring_old_phase, OLD_PHASE)

// ---- one product of tiles that threads write: every layout

// `mode`: the swizzle; `by_rows`: the matrix has its rows (of a: m, of b: n) one after the other, k is the slow one.
DEVICE int place_of(int row, int k, int mode, int by_rows) {  // in bytes; 64 rows, 16 of k
    const int span = 256 >> mode, along = by_rows ? row : k, across = by_rows ? k : row;
    int at;
    if (mode == 0) {
        // core matrices of 8 x 16 bytes, those along the fast dimension 128 bytes apart, the others behind them all
        const int chunks = by_rows ? TILE / 8 : 2;
        at = (across / 8 * chunks + along / 8) * 128 + across % 8 * 16 + along % 8 * 2;
    } else {
        // stripes of `span` bytes along the fast dimension, one behind the other
        const int stripe = along * 2 / span;
        at = stripe * (by_rows ? 16 : TILE) * span + across * span + along * 2 % span;
        at ^= at >> 3 & ((8 >> (mode - 1)) - 1) << 4;
    }
    return at;
}
DEVICE uint64_t descriptor_of(const void* p, int mode, int by_rows) {
    const int span = 256 >> mode;
    if (mode == 0) return by_rows ? descriptor(p, TILE / 8 * 128, 128, 0) : descriptor(p, 128, 256, 0);
    return by_rows ? descriptor(p, 16 * span, 8 * span, mode) : descriptor(p, 16, 8 * span, mode);
}
enum { WRITTEN, FENCED, WRONG_MAJOR };  // WRONG_MAJOR: offsets of a matrix whose k is the fast dimension
template <int STATE>
__global__ void layout_kernel(const __half* a, const __half* b, float* c, int mode, int by_rows) {
    __shared__ __align__(1024) char tile_a[TILE * 128], tile_b[TILE * 128];
    for (int i = threadIdx.x; i < TILE * 16; i += THREADS) {
        *reinterpret_cast<__half*>(tile_a + place_of(i / 16, i % 16, mode, 0)) = a[i];
        *reinterpret_cast<__half*>(tile_b + place_of(i / 16, i % 16, mode, by_rows)) = b[i];
    }
    if (STATE != WRITTEN) fence_proxy();
    __syncthreads();
    float d[32] = {};
    warpgroup_fence();
    if (by_rows)
        multiply_64<1>(d, descriptor_of(tile_a, mode, 0), descriptor_of(tile_b, mode, STATE != WRONG_MAJOR), 0);
    else
        multiply_64<0>(d, descriptor_of(tile_a, mode, 0), descriptor_of(tile_b, mode, 0), 0);  // layout_multiply
    warpgroup_commit();
    warpgroup_wait<0>();
    store_tile(c, 0, 0, TILE, d);
}
#define LAYOUT(name, state)                                                                                     \
    KATA_EXPORT void name(const void* a, const void* b, float* c, int mode, int by_rows, cudaStream_t stream) { \
        layout_kernel<state><<<1, THREADS, 0, stream>>>(                                                        \
            static_cast<const __half*>(a), static_cast<const __half*>(b), c, mode, by_rows);                    \
    }
LAYOUT(layout, FENCED)
LAYOUT(layout_no_fence, WRITTEN)
LAYOUT(layout_wrong_major, WRONG_MAJOR)

// The last rows of b are written when the product has read them.
__global__ void late_write_kernel(const __half* a, const __half* b, float* c) {
    __shared__ __align__(1024) char tile_a[TILE * 128], tile_b[TILE * 128];
    const int tid = threadIdx.x, late = TILE * 16 / 2;
    if (tid >= THREADS) {
        for (int i = 0; i < 200; ++i) __nanosleep(100);
        for (int i = late + tid - THREADS; i < TILE * 16; i += 32)
            *reinterpret_cast<__half*>(tile_b + place_of(i / 16, i % 16, 0, 0)) = b[i];  // late_write
        return;
    }
    for (int i = tid; i < TILE * 16; i += THREADS) {
        *reinterpret_cast<__half*>(tile_a + place_of(i / 16, i % 16, 0, 0)) = a[i];
        if (i < late) *reinterpret_cast<__half*>(tile_b + place_of(i / 16, i % 16, 0, 0)) = b[i];
    }
    fence_proxy();
    named_sync(1, THREADS);
    float d[32] = {};
    warpgroup_fence();
    multiply_64<0>(d, descriptor_of(tile_a, 0, 0), descriptor_of(tile_b, 0, 0), 0);  // late_multiply
    warpgroup_commit();
    warpgroup_wait<0>();
    store_tile(c, 0, 0, TILE, d);
}
KATA_EXPORT void late_write(const void* a, const void* b, float* c, cudaStream_t stream) {
    late_write_kernel<<<1, THREADS + 32, 0, stream>>>(static_cast<const __half*>(a), static_cast<const __half*>(b), c);
}

// ---- a in registers; two products under way, of which one is waited for

template <bool EARLY>
__global__ void registers_kernel(const __half* a, const __half* b, float* c) {
    __shared__ __align__(1024) char tile[2][16 * 32];  // b [n][k], unswizzled core matrices
    const int tid = threadIdx.x;
    for (int i = tid; i < 2 * 16 * 16; i += THREADS) {
        const int n = i / 16 % 16, k = i % 16;
        *reinterpret_cast<__half*>(tile[i / 256] + (n / 8 * 2 + k / 8) * 128 + n % 8 * 16 + k % 8 * 2) = b[i];
    }
    fence_proxy();
    __syncthreads();
    uint32_t left[2][4];
    for (int t = 0; t < 2; ++t)
        for (int i = 0; i < 4; ++i) {
            const int row = tid / 32 * 16 + tid % 32 / 4 + i % 2 * 8, k = i / 2 * 8 + tid % 4 * 2;
            left[t][i] = *reinterpret_cast<const uint32_t*>(a + (t * TILE + row) * 16 + k);
        }
    float d[2][8];
    warpgroup_fence();
    multiply_registers_16(d[0], left[0], descriptor(tile[0], 128, 256, 0), 0);  // registers_first
    warpgroup_commit();
    multiply_registers_16(d[1], left[1], descriptor(tile[1], 128, 256, 0), 0);
    warpgroup_commit();
    warpgroup_wait<1>();
    if (EARLY) c[0] = d[1][0];  // registers_early
    store_tile(c, 0, 0, 16, d[0]);
    warpgroup_wait<0>();
    store_tile(c, TILE, 0, 16, d[1]);
}
KATA_EXPORT void registers(const void* a, const void* b, float* c, cudaStream_t stream) {
    registers_kernel<false><<<1, THREADS, 0, stream>>>(static_cast<const __half*>(a), static_cast<const __half*>(b), c);
}
KATA_EXPORT void registers_early(const void* a, const void* b, float* c, cudaStream_t stream) {
    registers_kernel<true><<<1, THREADS, 0, stream>>>(static_cast<const __half*>(a), static_cast<const __half*>(b), c);
}

// A new operand for each step, before the product has read the one before.
__global__ void overwritten_kernel(const __half* a, const __half* b, float* c, int steps) {
    __shared__ __align__(1024) char tile[16 * 32];
    const int tid = threadIdx.x;
    for (int i = tid; i < 16 * 16; i += THREADS)
        *reinterpret_cast<__half*>(tile + (i / 16 / 8 * 2 + i % 16 / 8) * 128 + i / 16 % 8 * 16 + i % 8 * 2) = b[i];
    fence_proxy();
    __syncthreads();
    uint32_t left[4] = {};
    float d[8];
    warpgroup_fence();
#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
        multiply_registers_16(d, left, descriptor(tile, 128, 256, 0), s > 0);  // overwritten_multiply
        warpgroup_commit();
        for (int i = 0; i < 4; ++i) left[i] = reinterpret_cast<const uint32_t*>(a)[(s * 4 + i) * THREADS + tid];
        warpgroup_fence();
    }
    warpgroup_wait<0>();
    store_tile(c, 0, 0, 16, d);
}
KATA_EXPORT void overwritten(const void* a, const void* b, float* c, int steps, cudaStream_t stream) {
    overwritten_kernel<<<1, THREADS, 0, stream>>>(
        static_cast<const __half*>(a), static_cast<const __half*>(b), c, steps);
}

// The last group has no product: nothing is under way at the end.
__global__ void empty_group_kernel(const __half* a, const __half* b, float* c) {
    __shared__ __align__(1024) char tile[16 * 32];
    const int tid = threadIdx.x;
    for (int i = tid; i < 16 * 16; i += THREADS)
        *reinterpret_cast<__half*>(tile + (i / 16 / 8 * 2 + i % 16 / 8) * 128 + i / 16 % 8 * 16 + i % 8 * 2) = b[i];
    fence_proxy();
    __syncthreads();
    uint32_t left[4] = {};
    float d[8];
    warpgroup_fence();
    multiply_registers_16(d, left, descriptor(tile, 128, 256, 0), 0);
    warpgroup_commit();
    warpgroup_wait<0>();
    warpgroup_commit();
    store_tile(c, 0, 0, 16, d);
}
KATA_EXPORT void empty_group(const void* a, const void* b, float* c, cudaStream_t stream) {
    empty_group_kernel<<<1, THREADS, 0, stream>>>(static_cast<const __half*>(a), static_cast<const __half*>(b), c);
}
__global__ void unfinished_kernel(const __half* a, const __half* b, float* c) {
    __shared__ __align__(1024) char tile[16 * 32];
    for (int i = threadIdx.x; i < 16 * 16; i += THREADS) reinterpret_cast<__half*>(tile)[i] = b[i];
    fence_proxy();
    __syncthreads();
    uint32_t left[4] = {};
    float d[8];
    warpgroup_fence();
    multiply_registers_16(d, left, descriptor(tile, 128, 256, 0), 0);  // unfinished
    warpgroup_commit();
    warpgroup_commit();
    warpgroup_wait<1>();
    warpgroup_fence();
    multiply_registers_16(d, left, descriptor(tile, 128, 256, 0), 0);  // unfinished_last
}
KATA_EXPORT void unfinished(const void* a, const void* b, float* c, cudaStream_t stream) {
    unfinished_kernel<<<1, THREADS, 0, stream>>>(static_cast<const __half*>(a), static_cast<const __half*>(b), c);
}

// Warps 1 to 4 are no warpgroup.
__global__ void shifted_kernel(float* c) {
    if (threadIdx.x >= 32) {
        warpgroup_fence();  // shifted_fence
        warpgroup_commit();
        warpgroup_wait<0>();
    }
    c[threadIdx.x] = 1;
}
KATA_EXPORT void shifted(float* c, cudaStream_t stream) {
    shifted_kernel<<<1, 160, 0, stream>>>(c);
}

// ---- other types: d of 64 x 8, a [64][32 bytes], b [8][32 bytes], unswizzled

#define TYPE_KERNEL(name, form, registers, ...)                                                                        \
    __global__ void name##_kernel(const char* a, const char* b, uint32_t* c) {                                         \
        __shared__ __align__(1024) char tile_a[64 * 32], tile_b[8 * 32];                                               \
        for (int i = threadIdx.x; i < 64 * 32; i += THREADS) tile_a[i % 32 / 16 * 1024 + i / 32 * 16 + i % 16] = a[i]; \
        for (int i = threadIdx.x; i < 8 * 32; i += THREADS) tile_b[i % 32 / 16 * 128 + i / 32 * 16 + i % 16] = b[i];   \
        fence_proxy();                                                                                                 \
        __syncthreads();                                                                                               \
        uint32_t d[4] = {c[0], c[0], c[0], c[0]};                                                                      \
        __syncthreads();                                                                                               \
        warpgroup_fence();                                                                                             \
        asm volatile("wgmma.mma_async.sync.aligned." form " {" registers "}, %4, %5, 1" __VA_ARGS__ ";"                \
                     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                  \
                     : "l"(descriptor(tile_a, 1024, 128, 0)), "l"(descriptor(tile_b, 128, 128, 0)));                   \
        warpgroup_commit();                                                                                            \
        warpgroup_wait<0>();                                                                                           \
        for (int i = 0; i < 4; ++i) c[row_of(i) * 8 + column_of(i)] = d[i];                                            \
    }                                                                                                                  \
    KATA_EXPORT void name(const void* a, const void* b, uint32_t* c, int first, cudaStream_t stream) {                 \
        cudaMemsetAsync(c, 0, 64 * 8 * 4, stream);                                                                     \
        name##_kernel<<<1, THREADS, 0, stream>>>(static_cast<const char*>(a), static_cast<const char*>(b), c);         \
    }
TYPE_KERNEL(type_f16, "m64n8k16.f32.f16.f16", "%0, %1, %2, %3", ", 1, 1, 0, 0")
TYPE_KERNEL(type_bf16, "m64n8k16.f32.bf16.bf16", "%0, %1, %2, %3", ", 1, -1, 0, 0")
TYPE_KERNEL(type_tf32, "m64n8k8.f32.tf32.tf32", "%0, %1, %2, %3", ", 1, 1")
TYPE_KERNEL(type_e4m3, "m64n8k32.f32.e4m3.e4m3", "%0, %1, %2, %3", ", 1, 1")
TYPE_KERNEL(type_e5m2, "m64n8k32.f32.e5m2.e4m3", "%0, %1, %2, %3", ", 1, 1")
TYPE_KERNEL(type_s8, "m64n8k32.s32.s8.u8", "%0, %1, %2, %3", "")

// ---- registers that warpgroups give to each other. Of 256 threads, two blocks: 128 each. One block: what is taken, and
// no more. Of 288 threads: 168 each, as if there were 384, for each part of the multiprocessor has as many warps.

template <int GIVEN, int TAKEN, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) registers_pool_kernel(const float* a, float* c) {
    if (threadIdx.x < 128)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(GIVEN));
    else
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(TAKEN));  // pool_take
    c[threadIdx.x] = a[threadIdx.x];
}
#define POOL(name, ...)                                                    \
    KATA_EXPORT void name(const float* a, float* c, cudaStream_t stream) { \
        registers_pool_kernel<__VA_ARGS__><<<1, 256, 0, stream>>>(a, c);   \
    }
POOL(pool, 40, 216, 256, 2)
POOL(pool_too_small, 80, 216, 256, 2)
POOL(pool_alone, 24, 240, 256, 1)
POOL(pool_alone_most, 24, 256, 256, 1)
POOL(pool_of_parts, 88, 248, 288, 1)
POOL(pool_of_parts_too_small, 96, 248, 288, 1)

// ---- a launch that may begin before the one before it has ended

__global__ void first_kernel(const float* a, float* c) {
    c[threadIdx.x] = a[threadIdx.x];
    cudaTriggerProgrammaticLaunchCompletion();
}
template <bool WAITS>
__global__ void second_kernel(float* c) {
    if (WAITS) cudaGridDependencySynchronize();
    c[threadIdx.x] *= 2;  // dependent_read
}
template <bool WAITS>
void launch_both(const float* a, float* c, cudaStream_t stream) {
    first_kernel<<<1, 128, 0, stream>>>(a, c);
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = 128;
    config.stream = stream;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, second_kernel<WAITS>, c);
}
KATA_EXPORT void dependent(const float* a, float* c, cudaStream_t stream) {
    launch_both<true>(a, c, stream);
}
KATA_EXPORT void dependent_too_early(const float* a, float* c, cudaStream_t stream) {
    launch_both<false>(a, c, stream);
}
