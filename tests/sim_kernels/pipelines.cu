// Whole kernels as Hopper's libraries build them: persistent, ping-pong, in clusters, attention; and what goes wrong
// only in them (sm_90a).
#include "hopper.cuh"
#include <cuda_fp16.h>

constexpr int GROUP = 128, TILE = 64, SQUARE = TILE * TILE;  // threads of a warpgroup; a tile's side; its halves
constexpr int STAGES = 2;

// Where element i of a thread's part of a 64-row accumulator is.
DEVICE int row_of(int i) {
    return threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
}
DEVICE int column_of(int i) {
    return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
}
DEVICE uint32_t packed(float low, float high) {
    const __half2 both = __floats2half2_rn(low, high);  // packed
    return *reinterpret_cast<const uint32_t*>(&both);
}
DEVICE uint64_t tile_at(const __half* tile) {
    return descriptor(tile, 16, 1024);
}
// d += a b', tiles of 64 x 64; the descriptors advance inside of the swizzle's pattern.
DEVICE void multiply_tiles(float (&d)[32], const __half* a, const __half* b, bool adds) {
    for (int k = 0; k < TILE; k += 16)
        multiply_64(d, tile_at(a) + k / 8, tile_at(b) + k / 8, adds || k > 0);  // multiplies
}
DEVICE void initialise_ring(uint64_t* full, uint64_t* empty, int arrivals) {
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            initialise(&full[s], 1);
            initialise(&empty[s], arrivals);
        }
        fence_initialised();
    }
}
template <int REGISTERS>
DEVICE void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
// The warp's 16 rows of a tile of halves with the 128-byte swizzle.
DEVICE void store_matrices(__half* tile, const float (&d)[32]) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % GROUP / 32 * 16 + lane % 16;
    for (int j = 0; j < 4; ++j) {
        const int chunk = (2 * j + lane / 16) ^ row % 8;
        const uint32_t four[] = {
            packed(d[8 * j], d[8 * j + 1]), packed(d[8 * j + 2], d[8 * j + 3]), packed(d[8 * j + 4], d[8 * j + 5]),
            packed(d[8 * j + 6], d[8 * j + 7])};
        store_matrix(tile + row * TILE + chunk * 8, four);  // stores_matrix
    }
}

// ---- c = a b', persistent: a producer's warpgroup, two consumers with 64 of a tile's 128 rows each

enum Fault {
    NONE,
    ONE_PARITY,   // of the full barriers, also after the ring's end
    KEEPS_SUMS,   // of the tile before
    NO_FENCE,     // between stmatrix and the store
    STORE_READS,  // the tile of c while it is written again
};
constexpr int PERSISTENT = 3 * GROUP, STAGE = 3 * SQUARE;  // threads; halves of a stage

template <Fault FAULT>
DEVICE void consume(const CUtensorMap& c, __half* memory, uint64_t* full, uint64_t* empty, int tiles, int wide, int k) {
    const int group = threadIdx.x / GROUP;
    const bool leader = threadIdx.x % GROUP < 32 && elected();
    __half* out = memory + STAGES * STAGE + group * SQUARE;
    float d[32];
    for (int tile = blockIdx.x, use = 0; tile < tiles; tile += gridDim.x) {
        warpgroup_fence();  // one for all products that add to the same sums
        for (int i = 0; i < k / TILE; ++i, ++use) {
            const __half* stage = memory + use % STAGES * STAGE;
            wait(&full[use % STAGES], FAULT == ONE_PARITY ? 0 : use / STAGES & 1);  // persistent_wait
            const bool adds = i > 0 || (FAULT == KEEPS_SUMS && use > 0);
            multiply_tiles(d, stage + group * SQUARE, stage + 2 * SQUARE, adds);  // persistent_multiply
            warpgroup_commit();
            warpgroup_wait<1>();
            if (i > 0 && leader) arrive(&empty[(use - 1) % STAGES]);
        }
        warpgroup_wait<0>();
        if (leader) arrive(&empty[(use - 1) % STAGES]);
        if (leader && FAULT != STORE_READS) wait_read();  // by the store before
        named_sync(2 + group, GROUP);
        store_matrices(out, d);
        if (FAULT != NO_FENCE) fence_proxy();
        named_sync(2 + group, GROUP);
        if (leader) {
            store_box(&c, tile % wide * TILE, tile / wide * 2 * TILE + group * TILE, out);  // persistent_store
            commit_stores();
        }
    }
    if (leader) wait_written();
}
template <Fault FAULT>
__global__ void __launch_bounds__(PERSISTENT, 1) persistent_kernel(
    const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
    int tiles, int wide, int k) {
    extern __shared__ __align__(1024) __half memory[];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    initialise_ring(full, empty, 2);
    __syncthreads();
    if (threadIdx.x < 2 * GROUP) {
        take_registers<232>();
        return consume<FAULT>(c, memory, full, empty, tiles, wide, k);
    }
    give_registers<40>();
    if (threadIdx.x >= 2 * GROUP + 32 || !elected()) return;
    for (int tile = blockIdx.x, use = 0; tile < tiles; tile += gridDim.x)
        for (int i = 0; i < k; i += TILE, ++use) {
            __half* stage = memory + use % STAGES * STAGE;
            uint64_t* bar = &full[use % STAGES];
            wait(&empty[use % STAGES], (use / STAGES & 1) ^ 1);
            expect(bar, STAGE * sizeof(__half));
            load_box(stage, &a, i, tile / wide * 2 * TILE, bar);           // persistent_load
            load_box(stage + 2 * SQUARE, &b, i, tile % wide * TILE, bar);  // persistent_load_b
        }
}
template <Fault FAULT>
void persistent_product(const void* a, const void* b, void* c, int m, int n, int k, cudaStream_t stream) {
    constexpr int BYTES = (STAGES * STAGE + 2 * SQUARE) * sizeof(__half);
    cudaFuncSetAttribute(persistent_kernel<FAULT>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    persistent_kernel<FAULT><<<2, PERSISTENT, BYTES, stream>>>(
        half_map(a, m, k, 2 * TILE, TILE), half_map(b, n, k, TILE, TILE), half_map(c, m, n, TILE, TILE),
        m / 2 / TILE * (n / TILE), n / TILE, k);
}
#define PRODUCT(name, function)                                                                              \
    KATA_EXPORT void name(const void* a, const void* b, void* c, int m, int n, int k, cudaStream_t stream) { \
        function(a, b, c, m, n, k, stream);                                                                  \
    }
PRODUCT(persistent, persistent_product<NONE>)
PRODUCT(persistent_one_parity, persistent_product<ONE_PARITY>)
PRODUCT(persistent_keeps_sums, persistent_product<KEEPS_SUMS>)
PRODUCT(persistent_no_fence, persistent_product<NO_FENCE>)
PRODUCT(persistent_store_reads, persistent_product<STORE_READS>)

// ---- ping-pong: each consumer has its own tiles; barriers 2 and 3 say whose turn at the Tensor Cores it is

constexpr int PINGPONG_STAGE = 2 * SQUARE;

template <bool TAKES_TURNS>
__global__ void __launch_bounds__(PERSISTENT, 1) pingpong_kernel(
    const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, __half* c, int tiles, int n, int k) {
    extern __shared__ __align__(1024) __half memory[];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    initialise_ring(full, empty, 1);
    __syncthreads();
    const int group = threadIdx.x / GROUP, wide = n / TILE, steps = k / TILE;
    if (group == 2) {
        if (threadIdx.x >= 2 * GROUP + 32 || !elected()) return;
        for (int use = 0; use < tiles * steps; ++use) {
            const int tile = use / steps, at = use % steps * TILE;
            __half* stage = memory + use % STAGES * PINGPONG_STAGE;
            wait(&empty[use % STAGES], (use / STAGES & 1) ^ 1);
            expect(&full[use % STAGES], PINGPONG_STAGE * sizeof(__half));
            load_box(stage, &a, at, tile / wide * TILE, &full[use % STAGES]);  // pingpong_load
            load_box(stage + SQUARE, &b, at, tile % wide * TILE, &full[use % STAGES]);
        }
        return;
    }
    float d[32];
    if (group == 1) named_arrive(2, 2 * GROUP);  // the first turn is the other's
    for (int tile = group; tile < tiles; tile += 2) {
        if (TAKES_TURNS) named_sync(2 + group, 2 * GROUP);
        warpgroup_fence();
        for (int i = 0; i < steps; ++i) {
            const int use = tile * steps + i;
            const __half* stage = memory + use % STAGES * PINGPONG_STAGE;
            wait(&full[use % STAGES], use / STAGES & 1);
            multiply_tiles(d, stage, stage + SQUARE, i > 0);  // pingpong_multiply
            warpgroup_commit();
            warpgroup_wait<0>();
            if (threadIdx.x % GROUP == 0) arrive(&empty[use % STAGES]);
        }
        if (TAKES_TURNS) named_arrive(3 - group, 2 * GROUP);
        for (int i = 0; i < 32; i += 2) {
            __half2* to = reinterpret_cast<__half2*>(
                c + (tile / wide * TILE + row_of(i)) * n + tile % wide * TILE + column_of(i));
            *to = __floats2half2_rn(d[i], d[i + 1]);
        }
    }
    if (group == 0 && TAKES_TURNS) named_sync(2, 2 * GROUP);  // the last arrival of the other
}
template <bool TAKES_TURNS>
void pingpong_product(const void* a, const void* b, void* c, int m, int n, int k, cudaStream_t stream) {
    constexpr int BYTES = STAGES * PINGPONG_STAGE * sizeof(__half);
    cudaFuncSetAttribute(pingpong_kernel<TAKES_TURNS>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    pingpong_kernel<TAKES_TURNS><<<1, PERSISTENT, BYTES, stream>>>(
        half_map(a, m, k, TILE, TILE), half_map(b, n, k, TILE, TILE), static_cast<__half*>(c), m / TILE * (n / TILE), n,
        k);
}
PRODUCT(pingpong, pingpong_product<true>)

// ---- a cluster of two: each block loads half of b's tile for both; sums in two steps, with a scale for each column

constexpr int SIZE = 2, CLUSTERED = GROUP + 32, SCALED_STAGE = 2 * SQUARE + 2 * TILE;  // a, b, TILE floats

template <bool WAITS_AT_END>
__global__ void __cluster_dims__(SIZE, 1, 1) clustered_kernel(
    const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const float* scales, __half* c, int n,
    int k) {
    extern __shared__ __align__(1024) __half memory[];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    initialise_ring(full, empty, SIZE * 4);
    cluster_arrive_relaxed();
    cluster_wait();
    const int steps = k / TILE, row = blockIdx.x * TILE, column = blockIdx.y * TILE, lane = threadIdx.x % 32;
    constexpr int STRIDE = 3 * SQUARE;  // from stage to stage, a multiple of 1024 bytes
    if (threadIdx.x >= GROUP) {
        if (!elected()) return;
        const int half = int(rank()) * TILE / SIZE;
        for (int use = 0; use < steps; ++use) {
            __half* stage = memory + use % STAGES * STRIDE;
            uint64_t* bar = &full[use % STAGES];
            wait(&empty[use % STAGES], (use / STAGES & 1) ^ 1);
            expect(bar, SCALED_STAGE * sizeof(__half));
            load_box(stage, &a, use * TILE, row, bar);  // clustered_load
            load_box_to(stage + SQUARE + half * TILE, &b, use * TILE, column + half, bar, (1 << SIZE) - 1);
            load_bytes(stage + 2 * SQUARE, scales + use * n + column, TILE * sizeof(float), bar);
        }
        // One more lap: the other block has arrived for the last time when it ends.
        for (int use = steps; WAITS_AT_END && use < steps + STAGES; ++use)
            wait(&empty[use % STAGES], (use / STAGES & 1) ^ 1);
        return;
    }
    float sums[32] = {};
    for (int use = 0; use < steps; ++use) {
        const __half* stage = memory + use % STAGES * STRIDE;
        const float* scale = reinterpret_cast<const float*>(stage + 2 * SQUARE);
        float d[32];
        wait(&full[use % STAGES], use / STAGES & 1);
        warpgroup_fence();
        multiply_tiles(d, stage, stage + SQUARE, false);
        warpgroup_commit();
        warpgroup_wait<0>();
        for (int i = 0; i < 32; ++i) sums[i] += scale[column_of(i)] * d[i];
        __syncwarp();
        if (lane < SIZE) arrive_remote(&empty[use % STAGES], lane);  // clustered_free
    }
    for (int i = 0; i < 32; ++i) c[(row + row_of(i)) * n + column + column_of(i)] = __float2half(sums[i]);
}
template <bool WAITS_AT_END>
void clustered_product(
    const void* a, const void* b, const float* scales, void* c, int m, int n, int k, cudaStream_t stream) {
    constexpr int BYTES = STAGES * 3 * SQUARE * sizeof(__half);
    cudaFuncSetAttribute(clustered_kernel<WAITS_AT_END>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    clustered_kernel<WAITS_AT_END><<<dim3(m / TILE, n / TILE), CLUSTERED, BYTES, stream>>>(
        half_map(a, m, k, TILE, TILE), half_map(b, n, k, TILE / SIZE, TILE), scales, static_cast<__half*>(c), n, k);
}
#define SCALED(name, waits)                                                                                     \
    KATA_EXPORT void name(                                                                                      \
        const void* a, const void* b, const float* scales, void* c, int m, int n, int k, cudaStream_t stream) { \
        clustered_product<waits>(a, b, scales, c, m, n, k, stream);                                             \
    }
SCALED(clustered, true)
SCALED(clustered_no_last_lap, false)

// ---- attention: the next scores are under way beside the product with V, waits for 1 and then 0

DEVICE void softmax_step(float (&s)[32], float (&most)[2], float (&total)[2], float (&scale)[2]) {
    for (int r = 0; r < 2; ++r) {
        float now = most[r];
        for (int i = 0; i < 32; ++i)
            if (i / 2 % 2 == r) now = fmaxf(now, s[i]);
        for (int apart = 1; apart < 4; apart *= 2) now = fmaxf(now, __shfl_xor_sync(~0u, now, apart));
        scale[r] = __expf(most[r] - now);
        float sum = 0;
        for (int i = 0; i < 32; ++i)
            if (i / 2 % 2 == r) sum += s[i] = __expf(s[i] - now);
        for (int apart = 1; apart < 4; apart *= 2) sum += __shfl_xor_sync(~0u, sum, apart);
        total[r] = total[r] * scale[r] + sum;
        most[r] = now;
    }
}
DEVICE void to_operands(uint32_t (&p)[16], const float (&s)[32]) {
    for (int i = 0; i < 16; ++i) p[i] = packed(s[2 * i], s[2 * i + 1]);  // attention_convert
}
// sums += p v, v [keys][64]: the keys are the slow dimension
DEVICE void multiply_values(float (&sums)[32], const uint32_t (&p)[16], const __half* v, bool adds) {
    for (int k = 0; k < 4; ++k)
        multiply_registers_64<1>(
            sums, p + 4 * k, descriptor(v + k * 16 * TILE, 8192, 1024), adds || k > 0);  // attention_values
}
template <bool CONVERTS_EARLY>
__global__ void attention_kernel(
    const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
    float* out, int tiles) {
    extern __shared__ __align__(1024) __half memory[];  // q, then k and v of each stage
    __shared__ uint64_t got_q, full_k[STAGES], full_v[STAGES], empty_k[STAGES], empty_v[STAGES];
    initialise_ring(full_k, empty_k, 1);
    initialise_ring(full_v, empty_v, 1);
    if (threadIdx.x == 0) initialise(&got_q, 1);
    __syncthreads();
    const auto tile_k = [&](int j) { return memory + (1 + 2 * (j % STAGES)) * SQUARE; };
    const auto tile_v = [&](int j) { return memory + (2 + 2 * (j % STAGES)) * SQUARE; };
    constexpr int BYTES = SQUARE * sizeof(__half);
    if (threadIdx.x >= GROUP) {
        if (!elected()) return;
        expect(&got_q, BYTES);
        load_box(memory, &q, 0, blockIdx.x * TILE, &got_q);
        for (int j = 0; j < tiles; ++j) {
            const int s = j % STAGES, parity = j / STAGES & 1 ^ 1;
            wait(&empty_k[s], parity);
            expect(&full_k[s], BYTES);
            load_box(tile_k(j), &k, 0, j * TILE, &full_k[s]);
            wait(&empty_v[s], parity);
            expect(&full_v[s], BYTES);
            load_box(tile_v(j), &v, 0, j * TILE, &full_v[s]);
        }
        return;
    }
    const bool frees = threadIdx.x == 0;
    float sums[32], s[32], most[2] = {-1e30f, -1e30f}, total[2] = {}, scale[2];
    uint32_t p[16];
    wait(&got_q, 0);
    wait(&full_k[0], 0);
    warpgroup_fence();
    multiply_tiles(s, memory, tile_k(0), false);
    warpgroup_commit();
    warpgroup_wait<0>();
    if (frees) arrive(&empty_k[0]);
    softmax_step(s, most, total, scale);
    to_operands(p, s);
#pragma unroll 1
    for (int j = 1; j < tiles; ++j) {
        wait(&full_k[j % STAGES], j / STAGES & 1);
        warpgroup_fence();
        multiply_tiles(s, memory, tile_k(j), false);
        warpgroup_commit();
        wait(&full_v[(j - 1) % STAGES], (j - 1) / STAGES & 1);
        multiply_values(sums, p, tile_v(j - 1), j > 1);
        warpgroup_commit();
        warpgroup_wait<1>();
        if (frees) arrive(&empty_k[j % STAGES]);
        softmax_step(s, most, total, scale);
        if (CONVERTS_EARLY) to_operands(p, s);
        warpgroup_wait<0>();
        if (frees) arrive(&empty_v[(j - 1) % STAGES]);
        for (int i = 0; i < 32; ++i) sums[i] *= scale[i / 2 % 2];
        if (!CONVERTS_EARLY) to_operands(p, s);
    }
    wait(&full_v[(tiles - 1) % STAGES], (tiles - 1) / STAGES & 1);
    warpgroup_fence();
    multiply_values(sums, p, tile_v(tiles - 1), tiles > 1);
    warpgroup_commit();
    warpgroup_wait<0>();
    for (int i = 0; i < 32; ++i)
        out[(blockIdx.x * TILE + row_of(i)) * TILE + column_of(i)] = sums[i] / total[i / 2 % 2];
}
template <bool CONVERTS_EARLY>
void attend(const void* q, const void* k, const void* v, float* out, int queries, int keys, cudaStream_t stream) {
    constexpr int BYTES = (1 + 2 * STAGES) * SQUARE * sizeof(__half);
    cudaFuncSetAttribute(attention_kernel<CONVERTS_EARLY>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    attention_kernel<CONVERTS_EARLY><<<queries / TILE, GROUP + 32, BYTES, stream>>>(
        half_map(q, queries, TILE, TILE, TILE), half_map(k, keys, TILE, TILE, TILE),
        half_map(v, keys, TILE, TILE, TILE), out, keys / TILE);
}
#define ATTENTION(name, function)                                                                              \
    KATA_EXPORT void name(                                                                                     \
        const void* q, const void* k, const void* v, float* out, int queries, int keys, cudaStream_t stream) { \
        function(q, k, v, out, queries, keys, stream);                                                         \
    }
ATTENTION(attention, attend<false>)
ATTENTION(attention_converts_early, attend<true>)

// ---- attention with two consumers that take turns; the elected lane of the producer's warp copies

enum Leader { ELECTED, FIRST };                  // the lane that expects the bytes which the elected one copies
constexpr int QUERIES_READ = 4, TURNS = 5;       // named barriers, the second one for each consumer
constexpr int QUERIES_THREADS = 2 * GROUP + 32;  // the consumers and the producer's warp

template <Leader LEADER>
__global__ void __launch_bounds__(PERSISTENT, 1) forward_kernel(
    const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
    float* out, int works, int tiles) {
    extern __shared__ __align__(1024) __half memory[];  // 128 queries, then k and v of each stage
    __shared__ uint64_t got_q, full_k[STAGES], full_v[STAGES], empty_k[STAGES], empty_v[STAGES];
    initialise_ring(full_k, empty_k, 2);
    initialise_ring(full_v, empty_v, 2);
    if (threadIdx.x == 0) initialise(&got_q, 1);
    __syncthreads();
    const auto tile_k = [&](int use) { return memory + (2 + 2 * (use % STAGES)) * SQUARE; };
    const auto tile_v = [&](int use) { return memory + (3 + 2 * (use % STAGES)) * SQUARE; };
    constexpr int BYTES = SQUARE * sizeof(__half);
    const int group = threadIdx.x / GROUP;
    if (group == 0) {
        give_registers<40>();
        if (threadIdx.x >= 32) return;
        const bool copies = elected(), expects = LEADER == ELECTED ? copies : threadIdx.x == 0;
        const auto acquire = [&](uint64_t* full, uint64_t* empty, int use) {
            wait(&empty[use % STAGES], (use / STAGES & 1) ^ 1);
            if (expects) expect(&full[use % STAGES], BYTES);
        };
        for (int work = blockIdx.x, use = 0; work < works; work += gridDim.x) {
            named_sync(QUERIES_READ, QUERIES_THREADS);
            if (!copies) continue;
            expect(&got_q, 2 * BYTES);
            for (int i = 0; i < 2; ++i) load_box(memory + i * SQUARE, &q, 0, (2 * work + i) * TILE, &got_q);
            for (int j = 0; j < tiles; ++j, ++use) {
                acquire(full_k, empty_k, use);
                load_box(tile_k(use), &k, 0, j * TILE, &full_k[use % STAGES]);
                acquire(full_v, empty_v, use);
                load_box(tile_v(use), &v, 0, j * TILE, &full_v[use % STAGES]);
            }
        }
        return;
    }
    take_registers<232>();
    const bool frees = threadIdx.x % GROUP == 0;
    const __half* queries = memory + (group - 1) * SQUARE;
    float sums[32], s[32];
    const auto scores = [&](int use) {
        wait(&full_k[use % STAGES], use / STAGES & 1);  // forward_wait
        named_sync(TURNS + group - 1, 2 * GROUP);
        warpgroup_fence();
        multiply_tiles(s, queries, tile_k(use), false);
        warpgroup_commit();
        named_arrive(TURNS + 2 - group, 2 * GROUP);
    };
    const auto values = [&](int use, const uint32_t (&p)[16], bool adds) {
        wait(&full_v[use % STAGES], use / STAGES & 1);
        multiply_values(sums, p, tile_v(use), adds);
        warpgroup_commit();
    };
    if (group == 2) named_arrive(TURNS, 2 * GROUP);  // the first turn is the other's
    named_arrive(QUERIES_READ, QUERIES_THREADS);
    for (int work = blockIdx.x, nth = 0, use = 0; work < works; work += gridDim.x, ++nth) {
        float most[2] = {-1e30f, -1e30f}, total[2] = {}, scale[2];
        uint32_t p[16];
        wait(&got_q, nth & 1);
        scores(use);
        warpgroup_wait<0>();
        if (frees) arrive(&empty_k[use % STAGES]);
        softmax_step(s, most, total, scale);
        to_operands(p, s);
#pragma unroll 1
        for (int j = 1; j < tiles; ++j) {
            scores(++use);
            values(use - 1, p, j > 1);
            warpgroup_wait<1>();
            if (frees) arrive(&empty_k[use % STAGES]);
            softmax_step(s, most, total, scale);
            warpgroup_wait<0>();
            if (frees) arrive(&empty_v[(use - 1) % STAGES]);
            for (int i = 0; i < 32; ++i) sums[i] *= scale[i / 2 % 2];
            to_operands(p, s);
        }
        if (work + gridDim.x < works) named_arrive(QUERIES_READ, QUERIES_THREADS);
        warpgroup_fence();
        values(use, p, tiles > 1);
        warpgroup_wait<0>();
        if (frees) arrive(&empty_v[use % STAGES]);
        ++use;
        for (int i = 0; i < 32; ++i)
            out[((2 * work + group - 1) * TILE + row_of(i)) * TILE + column_of(i)] = sums[i] / total[i / 2 % 2];
    }
    if (group == 1) named_sync(TURNS, 2 * GROUP);  // the last arrival of the other
}
template <Leader LEADER>
void forward_attention(
    const void* q, const void* k, const void* v, float* out, int queries, int keys, cudaStream_t stream) {
    constexpr int BYTES = (2 + 2 * STAGES) * SQUARE * sizeof(__half);
    cudaFuncSetAttribute(forward_kernel<LEADER>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    forward_kernel<LEADER><<<1, PERSISTENT, BYTES, stream>>>(
        half_map(q, queries, TILE, TILE, TILE), half_map(k, keys, TILE, TILE, TILE),
        half_map(v, keys, TILE, TILE, TILE), out, queries / TILE / 2, keys / TILE);
}
ATTENTION(forward, forward_attention<ELECTED>)
ATTENTION(forward_first_expects, forward_attention<FIRST>)
