// sgemm_t_8x16_k16_warp_rbuf_serpentine_hoisted: C = A @ B, 8 x 16 elements of C per thread, 128-bit accesses
//
// Shapes     A: [M, K], B: [K, N], C: [M, N] f32, row-major, contiguous, 16-byte aligned bases, N and K multiples of 4
// Technique  128x256x16 tiles; each thread advances one pointer into A and one into B, once per slice
// New        over sgemm_t_8x16_sliced_k16_f32x4_bcf_dbuf_async_warp_rbuf_serpentine: loop invariants are computed once,
//            before the loop over slices
// Bound      arithmetic; the rest is how well the blocks fill the GPU and share its L2 cache
#include "kata.cuh"
#include <cstdint>

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 256;
constexpr int BLOCK_K = 16;
constexpr int THREAD_M = 8;   // rows of C per thread
constexpr int THREAD_N = 16;  // columns of C per thread
constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
constexpr int PACK = 4;    // floats in 16 bytes
constexpr int STEP_M = 4;  // lanes along M: a thread's packs of rows are PACK * STEP_M apart
constexpr int STEP_N = 8;  // and its packs of columns PACK * STEP_N
constexpr int WARP_M = STEP_M * THREAD_M;
constexpr int WARP_N = STEP_N * THREAD_N;
constexpr int WARPS_N = BLOCK_N / WARP_N;
static_assert(BLOCK_K % 2 == 0, "the first k of a slice is always in buffer 0");
static_assert(STEP_M * STEP_N == 32, "a warp's lanes");
static_assert(THREADS * PACK % BLOCK_K == 0 && THREADS * PACK % BLOCK_N == 0, "a thread's packs share columns");

// The column in A_smem[k] of element m of slice k of A's tile. Slices 0-3, 4-7, 8-11 and 12-15 differ in which 8 of 32
// banks come first. Packs remain whole and aligned.
__device__ inline int swizzle(int k, int m) {
    int place = m;
    place ^= k / PACK % 4 * 8;
    return place;
}

// The PACK floats at x, which is 16-byte aligned: one 128-bit access.
__device__ inline float4& pack_at(float* x) {
    return *reinterpret_cast<float4*>(x);
}

__device__ inline const float4& pack_at(const float* x) {
    return *reinterpret_cast<const float4*>(x);
}

// global -> registers: this thread's packs of a tile. X points to the first, and the others are below it. From X on,
// rows x cols elements are inside the matrix, whose rows are stride apart. If rows or cols is negative, none is.
// Elements outside count as 0. A pack is wholly inside or wholly outside: stride is a multiple of 4.
template <int ROWS, int COLS>
__device__ inline void fetch_tile(float4* X_rmem, const float* X, int rows, int cols, int stride) {
    static_assert(ROWS * COLS % (THREADS * PACK) == 0, "every thread has equally many packs");
#pragma unroll
    for (int i = 0; i < ROWS * COLS; i += THREADS * PACK) {
        float4 pack = {};
        if (i / COLS < rows && 0 < cols) pack = pack_at(&X[static_cast<int64_t>(i / COLS) * stride]);
        X_rmem[i / (THREADS * PACK)] = pack;
    }
}

// global -> shared: starts to copy the packs of a tile that fetch_tile would fetch, without registers: cp.async of the
// PTX ISA, 9.7.9.25.3.1. For a pack outside X it reads no byte and writes 16 zeros.
template <int ROWS, int COLS>
__device__ inline void copy_tile_async(float (*X_smem)[COLS], const float* X, int rows, int cols, int stride) {
    static_assert(ROWS * COLS % (THREADS * PACK) == 0, "every thread has equally many packs");
#pragma unroll
    for (int i = 0; i < ROWS * COLS; i += THREADS * PACK) {
        const int row = (i + threadIdx.x * PACK) / COLS;
        const int col = (i + threadIdx.x * PACK) % COLS;
        const bool inside = i / COLS < rows && 0 < cols;
        const float* from = &X[static_cast<int64_t>(i / COLS) * stride];
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&X_smem[row][col]));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(inside ? 16 : 0)
                     : "memory");
    }
}

// Waits for all copies that this thread has started (9.7.9.25.3.3).
__device__ inline void wait_all() {
    asm volatile("cp.async.wait_all;\n" ::: "memory");
}

// registers -> shared, transposed: the same into X_smem[col][row], swizzled.
template <int ROWS, int COLS>
__device__ inline void stage_tile_transposed(float (*X_smem)[ROWS], const float4* X_rmem) {
#pragma unroll
    for (int i = 0; i < ROWS * COLS; i += THREADS * PACK) {
        const int row = (i + threadIdx.x * PACK) / COLS;
        const int col = (i + threadIdx.x * PACK) % COLS;
        const float4 pack = X_rmem[i / (THREADS * PACK)];
        // Four lanes share a row of X. swizzle puts the 32 words of a warp's store into 32 banks.
        X_smem[col + 0][swizzle(col, row)] = pack.x;
        X_smem[col + 1][swizzle(col, row)] = pack.y;
        X_smem[col + 2][swizzle(col, row)] = pack.z;
        X_smem[col + 3][swizzle(col, row)] = pack.w;
    }
}

// shared -> registers: this thread's operands of one k.
__device__ inline void load_operands(
    float* A_rmem, float* B_rmem, const float (*A_smem)[BLOCK_M], const float (*B_smem)[BLOCK_N], int k, int thread_m,
    int thread_n) {
#pragma unroll
    for (int m = 0; m < THREAD_M; m += PACK)
        pack_at(&A_rmem[m]) = pack_at(&A_smem[k][swizzle(k, thread_m + m * STEP_M)]);
#pragma unroll
    for (int n = 0; n < THREAD_N; n += PACK) pack_at(&B_rmem[n]) = pack_at(&B_smem[k][thread_n + n * STEP_N]);
}

__global__ void __launch_bounds__(THREADS) sgemm_t_8x16_k16_warp_rbuf_serpentine_hoisted_kernel(
    const float* __restrict__ A,  // [M, K]
    const float* __restrict__ B,  // [K, N]
    float* __restrict__ C,        // [M, N]
    int M, int N, int K) {
    alignas(16) __shared__ float A_smem[2][BLOCK_K][BLOCK_M];
    alignas(16) __shared__ float B_smem[2][BLOCK_K][BLOCK_N];
    // This block's BLOCK_M x BLOCK_N tile of C. Consecutive blocks follow a row of tiles. Offsets into a matrix are
    // 64-bit: M, N and K fit int, their products may not.
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    const int64_t off_m = static_cast<int64_t>(blockIdx.x / tiles_n) * BLOCK_M;
    const int64_t off_n = static_cast<int64_t>(blockIdx.x % tiles_n) * BLOCK_N;
    const int warp_id = threadIdx.x / 32;
    const int lane_id = threadIdx.x % 32;
    const int thread_m = warp_id / WARPS_N * WARP_M + lane_id / STEP_N * PACK;
    const int thread_n = warp_id % WARPS_N * WARP_N + lane_id % STEP_N * PACK;
    alignas(16) float C_rmem[THREAD_M][THREAD_N] = {};
    float4 A_next[BLOCK_M * BLOCK_K / (THREADS * PACK)];  // this thread's packs of the next slice
    const int A_row = threadIdx.x * PACK / BLOCK_K;
    const int A_col = threadIdx.x * PACK % BLOCK_K;
    const int B_row = threadIdx.x * PACK / BLOCK_N;
    const int B_col = threadIdx.x * PACK % BLOCK_N;
    const int rows = static_cast<int>(M - off_m) - A_row;
    const int cols = static_cast<int>(N - off_n) - B_col;
    // TODO(1): Let A and B point to this thread's first pack of slice 0, at (A_row, A_col) and (B_row, B_col) of the
    //   block's tiles. Offsets are 64-bit. (~2 lines)
    // END TODO(1)
    fetch_tile<BLOCK_M, BLOCK_K>(A_next, A, rows, K - A_col, K);
    copy_tile_async<BLOCK_K, BLOCK_N>(B_smem[0], B, K - B_row, cols, N);
    alignas(16) float A_rmem[2][THREAD_M];
    alignas(16) float B_rmem[2][THREAD_N];
    stage_tile_transposed<BLOCK_M, BLOCK_K>(A_smem[0], A_next);
    wait_all();
    // A thread reads rows and columns that others staged, so all of them must have written.
    __syncthreads();
    load_operands(A_rmem[0], B_rmem[0], A_smem[0], B_smem[0], 0, thread_m, thread_n);
    // left: the columns of A and rows of B after this slice
    for (int stage = 0, left = K - BLOCK_K; left > -BLOCK_K; left -= BLOCK_K) {
        const int next = left > 0 ? 1 - stage : stage;
        // TODO(2): If there is a next slice, advance both pointers to it, and start to load it. What is left of it
        //   counts from this thread's first pack. (~6 lines)
        // END TODO(2)
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            if (k + 1 < BLOCK_K) {
                load_operands(
                    A_rmem[(k + 1) % 2], B_rmem[(k + 1) % 2], A_smem[stage], B_smem[stage], k + 1, thread_m, thread_n);
            } else {
                // Without a next slice, operands of this one are loaded again and never multiplied. So there is no
                // branch around the barrier, and the compiler may move products across it.
                if (next != stage) stage_tile_transposed<BLOCK_M, BLOCK_K>(A_smem[next], A_next);
                wait_all();
                // Others staged the next slice, so all of them must have written. All are done with this slice, except
                // for what they hold in registers: the next iteration may overwrite its buffer.
                __syncthreads();
                load_operands(A_rmem[0], B_rmem[0], A_smem[next], B_smem[next], 0, thread_m, thread_n);
            }
#pragma unroll
            for (int n = 0; n < THREAD_N; ++n) {
#pragma unroll
                for (int i = 0; i < THREAD_M; ++i) {
                    const int m = n % 2 == 0 ? i : THREAD_M - 1 - i;
                    C_rmem[m][n] += A_rmem[k % 2][m] * B_rmem[k % 2][n];
                }
            }
        }
        stage = next;
    }
#pragma unroll
    for (int m = 0; m < THREAD_M; ++m) {
        const int64_t row = off_m + thread_m + m / PACK * PACK * STEP_M + m % PACK;
#pragma unroll
        for (int n = 0; n < THREAD_N; n += PACK) {
            const int64_t col = off_n + thread_n + n * STEP_N;
            if (row < M && col < N) pack_at(&C[row * N + col]) = pack_at(&C_rmem[m][n]);
        }
    }
}

KATA_EXPORT void sgemm_t_8x16_k16_warp_rbuf_serpentine_hoisted(
    const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    // One-dimensional grid: y and z end at 65535 blocks, too few for a tall C. The count fits int: with 2^31 tiles C
    // would take terabytes.
    const int tiles_m = (M - 1) / BLOCK_M + 1;
    const int tiles_n = (N - 1) / BLOCK_N + 1;
    sgemm_t_8x16_k16_warp_rbuf_serpentine_hoisted_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(A, B, C, M, N, K);
}
