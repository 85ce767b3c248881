// ce_linear_tiled_bf16: lse[t] = log(sum of exp(logits)), loss[t] = lse[t] - logit of target[t], logits = W h[t]
//
// Shapes     h: [T, H], W: [V, H] bf16, row-major, contiguous, 16-byte aligned bases, target: [T] i64 in 0..V-1, loss,
//            lse: [T] f32, any T, V >= 1, H a multiple of 64
// Technique  128x256 logits per block on Tensor Cores, kept in registers: a ring of three slices of 64, two sets of
//            fragments; each block reduces its tile to one pair per row, and a second kernel merges the pairs of a row
// New        over ce_online_bf16: the logits come from a product, and none of them is written to memory
// Bound      Tensor Cores at the rate of mma.sync
#include "kata.cuh"
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cuda_bf16.h>

constexpr int MMA_M = 16;
constexpr int MMA_N = 8;
constexpr int MMA_K = 16;
constexpr int WARPS_M = 2;
constexpr int WARPS_N = 4;
constexpr int TILES_M = 4;  // mma tiles per warp
constexpr int TILES_N = 8;
constexpr int TILES_K = 4;  // steps of MMA_K per slice
static_assert(TILES_K % 2 == 0, "every slice begins in set 0");
constexpr int WARP_M = TILES_M * MMA_M;
constexpr int WARP_N = TILES_N * MMA_N;
constexpr int BLOCK_M = WARPS_M * WARP_M;  // rows of h per block
constexpr int BLOCK_N = WARPS_N * WARP_N;  // rows of W, which are columns of the logits
constexpr int BLOCK_K = TILES_K * MMA_K;
constexpr int STAGES = 3;       // slots in the ring
constexpr int PARTS = TILES_K;  // of a slice; each step copies one
constexpr int WARP_SIZE = 32;
constexpr int THREADS = WARPS_M * WARPS_N * WARP_SIZE;
constexpr int MERGE_THREADS = 128;  // of the second kernel: one warp per row
constexpr int CHUNK = 8;            // elements in one access of 16 bytes
constexpr int SMEM_BYTES = STAGES * (BLOCK_M + BLOCK_N) * BLOCK_K * int{sizeof(__nv_bfloat16)};
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS >= BLOCK_M, "one thread merges the pairs of a row");

// The maximum of some logits of a row, and their sum of exp(logit - maximum).
struct Partial {
    float max;
    float sum;
};

// The pair of no elements. The lowest float stands in for -inf, because -inf - -inf is nan, not 0.
__device__ __forceinline__ Partial nothing() {
    return {-FLT_MAX, 0.0f};
}

// The pair of the elements of both. The pair of a single element x is {x, 1}.
__device__ __forceinline__ Partial merge(Partial a, Partial b) {
    Partial merged = nothing();
    merged.max = fmaxf(a.max, b.max);
    merged.sum = a.sum * __expf(a.max - merged.max) + b.sum * __expf(b.max - merged.max);
    return merged;
}

// The pair of 2 * first adjacent lanes' elements, in each of them. All 32 lanes must call it together.
__device__ __forceinline__ Partial warp_reduce(Partial value, int first) {
#pragma unroll
    for (int offset = first; offset > 0; offset /= 2)
        value = merge(
            value, {__shfl_xor_sync(FULL_MASK, value.max, offset), __shfl_xor_sync(FULL_MASK, value.sum, offset)});
    return value;
}

// shared -> registers: four 8x8 matrices. Lane l passes the address of row l % 8 of matrix l / 8. From each matrix it
// gets elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4 (PTX ISA, "Warp-level matrix load instruction: ldmatrix").
__device__ inline void ldmatrix_x4(uint32_t (&regs)[4], const __nv_bfloat16* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3])
                 : "r"(address)
                 : "memory");
}

// The same: the first two matrices go to left, the others to right.
__device__ inline void ldmatrix_x4(uint32_t (&left)[2], uint32_t (&right)[2], const __nv_bfloat16* row) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(left[0]), "=r"(left[1]), "=r"(right[0]), "=r"(right[1])
                 : "r"(address)
                 : "memory");
}

// c += a @ b for bf16 a [16, 16] and b [16, 8], f32 c [16, 8]. PTX ISA, "Matrix Fragments for mma.m16n8k16 with
// floating point type", defines the fragments.
__device__ inline void mma_m16n8k16_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// global -> shared: 16 bytes, without registers. They have arrived once a wait for their group returns. If inside is
// false, it reads nothing and writes zeros (PTX ISA, "cp.async": src-size).
__device__ inline void cp_async16(__nv_bfloat16* smem, const __nv_bfloat16* gmem, bool inside) {
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

// Where the chunk that begins at column col is stored in its row of BLOCK_K elements, 128 bytes, in shared memory.
// ldmatrix reads eight chunks at a time, from eight rows at one column. Together they cover each of the 32 banks once.
__device__ inline int swizzle(int row, int col) {
    return col ^ row % 8 * CHUNK;
}

// global -> shared: rows first to end - 1 of a tile, 16 bytes at a time. first and end are multiples of STEP. rows
// counts what the matrix has from the tile's first row on. Rows past it count as 0.
template <int ROWS>
__device__ inline void load_rows(
    __nv_bfloat16 (&smem)[ROWS][BLOCK_K], const __nv_bfloat16* gmem, int ld, int rows, int first, int end) {
    constexpr int STEP = THREADS / (BLOCK_K / CHUNK);  // rows that the block copies at a time
    static_assert(STEP % 8 == 0, "a chunk STEP rows below has the same place in its row");
    const int row = threadIdx.x / (BLOCK_K / CHUNK);
    const int col = threadIdx.x % (BLOCK_K / CHUNK) * CHUNK;
    const __nv_bfloat16* from = gmem + int64_t{row} * ld + col;
    const int place = swizzle(row, col);
#pragma unroll
    for (int step = first; step < end; step += STEP)
        cp_async16(&smem[row + step][place], from + int64_t{step} * ld, row + step < rows);
}

// shared -> registers: the fragments of step k of both slices for a warp's WARP_M x WARP_N logits.
__device__ inline void load_fragments(
    uint32_t (&h_rmem)[TILES_M][4], uint32_t (&W_rmem)[TILES_N][2], const __nv_bfloat16 (&h_smem)[BLOCK_M][BLOCK_K],
    const __nv_bfloat16 (&W_smem)[BLOCK_N][BLOCK_K], int warp_m, int warp_n, int k) {
    const int lane_id = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) {
        const int row = warp_m + m * MMA_M + lane_id % 16;
        ldmatrix_x4(h_rmem[m], &h_smem[row][swizzle(row, k * MMA_K + lane_id / 16 * CHUNK)]);
    }
    const int row = warp_n + lane_id / 16 * MMA_N + lane_id % 8;
    const int place = swizzle(row, k * MMA_K + lane_id / 8 % 2 * CHUNK);
#pragma unroll
    for (int n = 0; n < TILES_N; n += 2) ldmatrix_x4(W_rmem[n], W_rmem[n + 1], &W_smem[row + n * MMA_N][place]);
}

// The pairs of all tiles, and every row's logit of its target.
__global__ void __launch_bounds__(THREADS) ce_linear_tiled_bf16_kernel(
    const __nv_bfloat16* __restrict__ h,  // [T, H]
    const __nv_bfloat16* __restrict__ W,  // [V, H]
    const int64_t* __restrict__ target,   // [T]
    Partial* __restrict__ pairs,          // [T, tiles_n]
    float* __restrict__ target_logits,    // [T]
    int T, int V, int H) {
    // More than 48 KB of shared memory must be dynamic: the launch passes its size.
    extern __shared__ __align__(16) __nv_bfloat16 smem[];
    __shared__ Partial pair_smem[WARPS_N][BLOCK_M];
    const auto h_smem = reinterpret_cast<__nv_bfloat16(*)[BLOCK_M][BLOCK_K]>(smem);             // [STAGES]
    const auto W_smem = reinterpret_cast<__nv_bfloat16(*)[BLOCK_N][BLOCK_K]>(h_smem + STAGES);  // [STAGES]
    // Strips of STRIP tiles side by side: the blocks that run at the same time share rows of h and of W in L2.
    constexpr int STRIP = 8;
    const int tiles_m = (T - 1) / BLOCK_M + 1;
    const int tiles_n = (V - 1) / BLOCK_N + 1;
    const int first_n = blockIdx.x / (tiles_m * STRIP) * STRIP;
    const int width = min(STRIP, tiles_n - first_n);
    const int place = blockIdx.x - first_n * tiles_m;
    const int tile_n = first_n + place % width;
    const int off_m = place / width * BLOCK_M;
    const int off_n = tile_n * BLOCK_N;
    const int tid = threadIdx.x;
    const int lane_id = tid % WARP_SIZE;
    const int warp_m = tid / WARP_SIZE / WARPS_N * WARP_M;
    const int warp_n = tid / WARP_SIZE % WARPS_N * WARP_N;
    float logits[TILES_M][TILES_N][4] = {};
    // The corners of the slice to copy next.
    const __nv_bfloat16* h_gmem = h + int64_t{off_m} * H;
    const __nv_bfloat16* W_gmem = W + int64_t{off_n} * H;
    int k_left = H;
    const auto load_part = [&](int stage, int part) {
        // Past the last slice there are no rows: the copies write zeros, and the groups keep their count.
        const int rows_h = k_left > 0 ? T - off_m : 0, rows_W = k_left > 0 ? V - off_n : 0;
        load_rows(h_smem[stage], h_gmem, H, rows_h, part * BLOCK_M / PARTS, (part + 1) * BLOCK_M / PARTS);
        load_rows(W_smem[stage], W_gmem, H, rows_W, part * BLOCK_N / PARTS, (part + 1) * BLOCK_N / PARTS);
        if (part + 1 < PARTS) return;
        cp_async_commit();
        h_gmem += BLOCK_K;
        W_gmem += BLOCK_K;
        k_left -= BLOCK_K;
    };
    for (int stage = 0; stage < STAGES - 1; ++stage) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) load_part(stage, part);
    }
    uint32_t h_rmem[2][TILES_M][4];  // step k of a slice is in set k % 2
    uint32_t W_rmem[2][TILES_N][2];
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // all threads' part of the first slice has arrived
    load_fragments(h_rmem[0], W_rmem[0], h_smem[0], W_smem[0], warp_m, warp_n, 0);
    int stage = 0;  // of the fragments to load next
    for (int slice = 0; slice < H / BLOCK_K; ++slice) {
        const int to = stage == 0 ? STAGES - 1 : stage - 1;  // the stage of the previous slice
#pragma unroll
        for (int k = 0; k < TILES_K; ++k) {
            // TODO(1): Load the fragments of the next step, which after the last step is step 0 of the next slice: wait
            //   for it, and move on to its stage, where no thread may still need the one before. Copy part k of the
            //   slice after it to stage to. Multiply those of this step. (~18 lines)
            if (k + 1 == TILES_K) {
                // This thread's part of the next slice has arrived. The slice after it has no group yet.
                cp_async_wait<STAGES - 3>();
                __syncthreads();  // so has all threads' part, and all threads have loaded all of this slice
                stage = stage + 1 < STAGES ? stage + 1 : 0;  // cheaper than a remainder by three
            }
            const int next = (k + 1) % TILES_K;
            load_fragments(h_rmem[next % 2], W_rmem[next % 2], h_smem[stage], W_smem[stage], warp_m, warp_n, next);
            load_part(to, k);
#pragma unroll
            for (int n = 0; n < TILES_N; ++n) {
#pragma unroll
                for (int i = 0; i < TILES_M; ++i) {
                    // Down and up again: one operand stays from one mma.sync to the next.
                    const int m = n % 2 == 0 ? i : TILES_M - 1 - i;
                    mma_m16n8k16_bf16(logits[m][n], h_rmem[k % 2][m], W_rmem[k % 2][n]);
                }
            }
            // END TODO(1)
        }
    }
    // A lane has columns 2 * (lane_id % 4) and the next of mma tile [m][n], in rows lane_id / 4 and lane_id / 4 + 8.
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = warp_m + m * MMA_M + i * 8 + lane_id / 4;  // of the tile
            const int64_t label = off_m + row < T ? target[off_m + row] : -1;
            Partial pair = nothing();
            // TODO(2): The pair of this lane's logits of the row: columns past V do not exist, and the logit of column
            //   label goes to target_logits. Reduce the pair over the lanes that share the row, and let one of them
            //   store it for its warp. (~15 lines)
#pragma unroll
            for (int n = 0; n < TILES_N; ++n) {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    float& logit = logits[m][n][2 * i + j];
                    const int col = off_n + warp_n + n * MMA_N + lane_id % 4 * 2 + j;
                    if (col == label) target_logits[off_m + row] = logit;
                    if (col >= V) logit = -INFINITY;
                    pair.max = fmaxf(pair.max, logit);
                }
            }
#pragma unroll
            for (int n = 0; n < TILES_N; ++n) {
                pair.sum += __expf(logits[m][n][2 * i] - pair.max) + __expf(logits[m][n][2 * i + 1] - pair.max);
            }
            pair = warp_reduce(pair, 2);
            if (lane_id % 4 == 0) pair_smem[tid / WARP_SIZE % WARPS_N][row] = pair;
            // END TODO(2)
        }
    }
    // A row's pair needs those of WARPS_N warps.
    __syncthreads();
    // TODO(3): Merge the pairs of each row of the tile that exists. Store it as the row's pair of tile_n. (~5 lines)
    if (tid < BLOCK_M && off_m + tid < T) {
        Partial pair = nothing();
        for (int warp = 0; warp < WARPS_N; ++warp) pair = merge(pair, pair_smem[warp][tid]);
        pairs[int64_t{off_m + tid} * tiles_n + tile_n] = pair;
    }
    // END TODO(3)
}

// One warp per row merges the pairs of all tiles.
__global__ void __launch_bounds__(MERGE_THREADS) merge_tiles_kernel(
    const Partial* __restrict__ pairs, const float* __restrict__ target_logits, float* __restrict__ loss,
    float* __restrict__ lse, int T, int tiles_n) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int row = blockIdx.x * (MERGE_THREADS / WARP_SIZE) + threadIdx.x / WARP_SIZE;
    // A warp without a row returns as a whole.
    if (row >= T) return;
    // TODO(4): Merge the row's pairs, and store lse and loss. (~7 lines)
    Partial pair = nothing();
    for (int tile = lane_id; tile < tiles_n; tile += WARP_SIZE)
        pair = merge(pair, pairs[int64_t{row} * tiles_n + tile]);
    pair = warp_reduce(pair, WARP_SIZE / 2);
    if (lane_id == 0) {
        lse[row] = pair.max + logf(pair.sum);
        loss[row] = logf(pair.sum) + (pair.max - target_logits[row]);
    }
    // END TODO(4)
}

KATA_EXPORT void ce_linear_tiled_bf16(
    const __nv_bfloat16* h, const __nv_bfloat16* W, const int64_t* target, float* loss, float* lse, int T, int V, int H,
    cudaStream_t stream) {
    const int tiles_m = (T - 1) / BLOCK_M + 1;
    const int tiles_n = (V - 1) / BLOCK_N + 1;
    Partial* pairs = nullptr;
    float* target_logits = nullptr;
    cudaMallocAsync(&pairs, int64_t{T} * tiles_n * sizeof(Partial), stream);
    cudaMallocAsync(&target_logits, T * sizeof(float), stream);
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(ce_linear_tiled_bf16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES);
    // One-dimensional grid: y and z end at 65535 blocks.
    ce_linear_tiled_bf16_kernel<<<tiles_m * tiles_n, THREADS, SMEM_BYTES, stream>>>(
        h, W, target, pairs, target_logits, T, V, H);
    const int merge_blocks = (T - 1) / (MERGE_THREADS / WARP_SIZE) + 1;
    merge_tiles_kernel<<<merge_blocks, MERGE_THREADS, 0, stream>>>(pairs, target_logits, loss, lse, T, tiles_n);
    cudaFreeAsync(target_logits, stream);
    cudaFreeAsync(pairs, stream);
}
