// w4a16_gemm_f16: y = x W^T for up to 64 rows of x, W[n, k] = s[k / 128, n] * (u[n, k] - 8), weights in 4 bits
//
// Shapes     x: [T, K], y: [T, N] f16, q: [K / 16, N / 64, 32, 4] int, s: [K / 128, N] f16, contiguous, 16-byte aligned
//            bases, T from 1 to 64, N = 64 * tiles, K = 128 * groups, tiles, groups >= 1. Nibble p of word j of lane l,
//            p from 0 to 3, is u[n, k], nibble p + 4 is u[n, k + 1], with n = 64 * tile + 16 * j + p / 2 * 8 + l / 4
//            and k = 16 * step + p % 2 * 8 + l % 4 * 2. The product s * (u - 8) may be rounded to f16
// Technique  a word that a lane loads holds its fragments of B for two mma tiles; a ring of slices by cp.async; K is
//            split where the columns are too few for all SMs
// New        over w4a16_gemv_f16: the weights lie in memory as the lanes of mma.sync need them
// Bound      memory bandwidth up to some 32 rows, Tensor Cores at the rate of mma.sync above
#include "kata.cuh"
#include <algorithm>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int WARP_SIZE = 32;
constexpr int WARPS = 4;
constexpr int THREADS = WARPS * WARP_SIZE;
constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 16;
constexpr int TILE_N = 64;               // columns of y per warp
constexpr int TILES_N = TILE_N / MMA_N;  // mma tiles per warp, side by side
constexpr int BLOCK_N = WARPS * TILE_N;
constexpr int GROUP = 128;            // weights that share a scale: the K of a slice
constexpr int STEPS = GROUP / MMA_K;  // per slice
constexpr int STAGES = 3;             // slots in the ring
constexpr int CHUNK = 8;              // halves in one access of 16 bytes
constexpr int SLOTS = 264;            // blocks that run at the same time on 132 SMs
constexpr int MIN_GROUPS = 4;         // per split
constexpr int REDUCE_THREADS = 256;

// What a stage of the ring holds: a slice of x and of the weights, and the scales of its group.
template <int ROWS>
struct Slice {
    half x[ROWS][GROUP];
    uint4 q[STEPS][WARPS][WARP_SIZE];
    half s[BLOCK_N];
};

// shared -> registers: four 8x8 matrices. Lane l passes the address of row l % 8 of matrix l / 8. From each matrix it
// gets elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4 (PTX ISA, "Warp-level matrix load instruction: ldmatrix").
__device__ inline void ldmatrix_x4(uint32_t (&regs)[4], const half* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3])
                 : "r"(address)
                 : "memory");
}

// c += a @ b for a [16, 16], b [16, 8], c [16, 8]. PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point
// type", defines the fragments.
__device__ inline void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// global -> shared: 16 bytes, without registers. They have arrived once a wait for their group returns. If inside is
// false, it reads nothing and writes zeros (PTX ISA, "cp.async": src-size).
__device__ inline void cp_async16(void* smem, const void* gmem, bool inside) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
    const size_t from = __cvta_generic_to_global(gmem);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

// Makes a group of this thread's copies since the last commit.
__device__ inline void cp_async_commit() {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

// Waits until at most the PENDING newest groups of this thread are in flight.
template <int PENDING>
__device__ inline void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" : : "n"(PENDING) : "memory");
}

// Where the chunk that begins at column col is stored in its row of a slice of x. ldmatrix reads eight chunks at a
// time, from eight rows at one column. Together they cover each of the 32 banks once.
__device__ inline int swizzle(int row, int col) {
    return col ^ row % 8 * CHUNK;
}

// word & mask | bits, in one instruction: bit (4 a + 2 b + c) of 0xea is the result for the bits a, b, c of the three.
__device__ __forceinline__ uint32_t and_or(uint32_t word, uint32_t mask, uint32_t bits) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
    return result;
}

// The weights u - 8 of a word's eight nibbles, as halves: pairs[i] has those of nibbles i and i + 4.
__device__ __forceinline__ void widen(half2 (&pairs)[4], uint32_t word) {
    const half2 sixteenth = __float2half2_rn(1.0f / 16.0f);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t shifted = word >> (4 * i);
        const uint32_t low = and_or(shifted, 0x000f000f, 0x64006400);
        const uint32_t high = and_or(shifted, 0x00f000f0, 0x64006400);
        pairs[i] = __hsub2(reinterpret_cast<const half2&>(low), __float2half2_rn(1024.0f + 8.0f));
        pairs[i + 1] = __hfma2(reinterpret_cast<const half2&>(high), sixteenth, __float2half2_rn(-64.0f - 8.0f));
    }
}

// This lane's fragments of W for the mma tiles that a word holds: 2 * j and 2 * j + 1 of word j. scales has the scales
// of this lane's column in each tile.
__device__ __forceinline__ void dequantise(uint32_t (&W)[2][2], uint32_t word, const half (&scales)[2]) {
    half2 pairs[4] = {};
    // TODO(1): Fill both fragments: of the weights in the order of the nibbles, each times the scale of its column.
    //   (~5 lines)
    widen(pairs, word);
#pragma unroll
    for (int p = 0; p < 4; ++p) pairs[p] = __hmul2(pairs[p], __half2half2(scales[p / 2]));
    // END TODO(1)
#pragma unroll
    for (int p = 0; p < 4; ++p) W[p / 2][p % 2] = reinterpret_cast<const uint32_t&>(pairs[p]);
}

// Stores y where one split has all of K, else each split's sums in partial [splits, T, N].
template <int TILES_M>
__global__ void __launch_bounds__(THREADS, 2) w4a16_gemm_f16_kernel(
    const half* __restrict__ x,  // [T, K]
    const int* __restrict__ q,   // [K / 16, tiles, 32, 4]
    const half* __restrict__ s,  // [K / GROUP, N]
    half* __restrict__ y,        // [T, N]
    float* __restrict__ partial, int T, int tiles, int groups, int splits) {
    constexpr int ROWS = TILES_M * MMA_M;
    // More than 48 KB of shared memory must be dynamic: the launch passes its size.
    extern __shared__ __align__(16) unsigned char smem[];
    const auto ring = reinterpret_cast<Slice<ROWS>*>(smem);  // [STAGES]
    const int tid = threadIdx.x;
    const int warp_id = tid / WARP_SIZE;
    const int lane_id = tid % WARP_SIZE;
    const int split = blockIdx.x % splits;
    const int block_n = blockIdx.x / splits * BLOCK_N;
    const int tile = block_n / TILE_N + warp_id;
    const int N = tiles * TILE_N;
    const int64_t K = int64_t{groups} * GROUP;
    // The groups of this split: as even as they can be.
    const int begin = static_cast<int>(int64_t{groups} * split / splits);
    const int end = static_cast<int>(int64_t{groups} * (split + 1) / splits);
    const auto words = reinterpret_cast<const uint4*>(q);  // [K / 16, tiles, 32]
    // Starts the copies of a slice as one group: empty from the end on.
    const auto load_slice = [&](int group) {
        if (group < end) {
            Slice<ROWS>& slice = ring[(group - begin) % STAGES];
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                // TODO(2): global -> shared: this lane's words of the step. A tile past the last counts as zeros.
                //   (~2 lines)
                const int64_t from = (int64_t{group} * STEPS + step) * tiles + (tile < tiles ? tile : 0);
                cp_async16(&slice.q[step][warp_id][lane_id], words + from * WARP_SIZE + lane_id, tile < tiles);
                // END TODO(2)
            }
#pragma unroll
            for (int i = tid; i < ROWS * GROUP / CHUNK; i += THREADS) {
                const int row = i / (GROUP / CHUNK), col = i % (GROUP / CHUNK) * CHUNK;
                const half* from = x + (row < T ? row : 0) * K + int64_t{group} * GROUP + col;
                cp_async16(&slice.x[row][swizzle(row, col)], from, row < T);
            }
            if (tid < BLOCK_N / CHUNK) {
                const int col = block_n + tid * CHUNK;
                cp_async16(&slice.s[tid * CHUNK], s + int64_t{group} * N + (col < N ? col : 0), col < N);
            }
        }
        cp_async_commit();
    };
    float y_rmem[TILES_M][TILES_N][4] = {};
    for (int i = 0; i < STAGES - 1; ++i) load_slice(begin + i);
    for (int group = begin; group < end; ++group) {
        // TODO(3): Wait for this group's slice, and start the copies of the group STAGES - 1 after it where no thread
        //   reads any more. (~3 lines)
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // all threads' part has arrived, and all threads are done with the slice before
        load_slice(group + STAGES - 1);
        // END TODO(3)
        const Slice<ROWS>& slice = ring[(group - begin) % STAGES];
        half scales[TILES_N];
#pragma unroll
        for (int n = 0; n < TILES_N; ++n) scales[n] = slice.s[warp_id * TILE_N + n * MMA_N + lane_id / 4];
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            uint32_t x_rmem[TILES_M][4];
#pragma unroll
            for (int m = 0; m < TILES_M; ++m) {
                const int row = m * MMA_M + lane_id % 16;
                ldmatrix_x4(x_rmem[m], &slice.x[row][swizzle(row, step * MMA_K + lane_id / 16 * CHUNK)]);
            }
            const uint4 packed = slice.q[step][warp_id][lane_id];
            const uint32_t word[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                // TODO(4): Multiply all rows of x with the columns that word j holds. (~7 lines)
                uint32_t W_rmem[2][2];
                dequantise(W_rmem, word[j], {scales[2 * j], scales[2 * j + 1]});
#pragma unroll
                for (int m = 0; m < TILES_M; ++m) {
                    mma_m16n8k16(y_rmem[m][2 * j], x_rmem[m], W_rmem[0]);
                    mma_m16n8k16(y_rmem[m][2 * j + 1], x_rmem[m], W_rmem[1]);
                }
                // END TODO(4)
            }
        }
    }
    if (tile >= tiles) return;
    // A lane has columns 2 * (lane_id % 4) and the next of an mma tile, in rows lane_id / 4 and lane_id / 4 + 8.
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = m * MMA_M + i * 8 + lane_id / 4;
            if (row >= T) continue;
#pragma unroll
            for (int n = 0; n < TILES_N; ++n) {
                const int64_t at = int64_t{row} * N + tile * TILE_N + n * MMA_N + lane_id % 4 * 2;
                const float2 pair = {y_rmem[m][n][2 * i], y_rmem[m][n][2 * i + 1]};
                // TODO(5): Store the pair once: in y where it is the whole sum, otherwise in this split's part of
                //   partial. (~5 lines)
                if (splits == 1) {
                    *reinterpret_cast<half2*>(&y[at]) = __float22half2_rn(pair);
                } else {
                    *reinterpret_cast<float2*>(&partial[int64_t{split} * T * N + at]) = pair;
                }
                // END TODO(5)
            }
        }
    }
}

// y = the sum of the splits, two columns per thread.
__global__ void __launch_bounds__(REDUCE_THREADS)
    add_splits_kernel(const float* __restrict__ partial, half* __restrict__ y, int64_t count, int splits) {
    const int64_t at = 2 * (int64_t{blockIdx.x} * REDUCE_THREADS + threadIdx.x);
    if (at >= count) return;
    float2 sum = {0.0f, 0.0f};
    for (int split = 0; split < splits; ++split) {
        const float2 part = *reinterpret_cast<const float2*>(&partial[split * count + at]);
        sum.x += part.x;
        sum.y += part.y;
    }
    *reinterpret_cast<half2*>(&y[at]) = __float22half2_rn(sum);
}

template <int TILES_M>
void launch(
    const half* x, const int* q, const half* s, half* y, float* partial, int T, int tiles, int groups, int splits,
    cudaStream_t stream) {
    constexpr int BYTES = STAGES * int{sizeof(Slice<TILES_M * MMA_M>)};
    const auto kernel = w4a16_gemm_f16_kernel<TILES_M>;
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    const int blocks = (tiles - 1) / WARPS + 1;
    kernel<<<blocks * splits, THREADS, BYTES, stream>>>(x, q, s, y, partial, T, tiles, groups, splits);
}

KATA_EXPORT void w4a16_gemm_f16(
    const half* x, const int* q, const half* s, half* y, int T, int tiles, int groups, cudaStream_t stream) {
    const int blocks = (tiles - 1) / WARPS + 1;
    const int splits = std::max(1, std::min(SLOTS / blocks, groups / MIN_GROUPS));
    const int64_t count = int64_t{T} * tiles * TILE_N;
    float* partial = nullptr;
    if (splits > 1) cudaMallocAsync(&partial, splits * count * sizeof(float), stream);
    if (T <= MMA_M) {
        launch<1>(x, q, s, y, partial, T, tiles, groups, splits, stream);
    } else if (T <= 2 * MMA_M) {
        launch<2>(x, q, s, y, partial, T, tiles, groups, splits, stream);
    } else {
        launch<4>(x, q, s, y, partial, T, tiles, groups, splits, stream);
    }
    if (splits > 1) {
        const auto reduce_blocks = static_cast<unsigned>((count / 2 - 1) / REDUCE_THREADS + 1);
        add_splits_kernel<<<reduce_blocks, REDUCE_THREADS, 0, stream>>>(partial, y, count, splits);
        cudaFreeAsync(partial, stream);
    }
}
