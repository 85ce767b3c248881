// What tests/sim_benchmark.py times beside the solutions: tensor cores fed by asynchronous copies, and a shared tile.
#include "kata.cuh"
#include <cuda_fp16.h>

constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;

__device__ __forceinline__ unsigned smem_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void copy_16(void* to_smem, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_address(to_smem)), "l"(from) : "memory");
}
__device__ __forceinline__ void commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT>
__device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
// Four 8x8 matrices; lane i names row i % 8 of matrix i / 8.
template <bool TRANSPOSED>
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const half* row_smem) {
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(smem_address(row_smem))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(smem_address(row_smem))
                     : "memory");
}
__device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ unsigned packed(float low, float high) {
    const half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&both);
}

// ---- C = A @ B, tiles of 128 x 128 x 32 in two stages; sizes are multiples of the tile's

constexpr int BLOCK_M = 128, BLOCK_N = 128, BLOCK_K = 32, WARP_M = 64, WARP_N = 32, GEMM_THREADS = 256, PAD = 8;

__global__ void __launch_bounds__(GEMM_THREADS) hgemm_kernel(const half* A, const half* B, half* C, int n) {
    __shared__ __align__(16) half A_smem[2][BLOCK_M][BLOCK_K + PAD], B_smem[2][BLOCK_K][BLOCK_N + PAD];
    const int tid = threadIdx.x, lane_id = tid % 32, warp_id = tid / 32;
    const int off_m = blockIdx.y * BLOCK_M, off_n = blockIdx.x * BLOCK_N;
    const int warp_m = warp_id / 4 * WARP_M, warp_n = warp_id % 4 * WARP_N;
    const auto stage = [&](int buffer, int off_k) {  // global -> shared, 16 bytes a copy
        for (int i = tid; i < BLOCK_M * BLOCK_K / 8; i += GEMM_THREADS) {
            const int row = i / (BLOCK_K / 8), col = i % (BLOCK_K / 8) * 8;
            copy_16(&A_smem[buffer][row][col], A + size_t(off_m + row) * n + off_k + col);
        }
        for (int i = tid; i < BLOCK_K * BLOCK_N / 8; i += GEMM_THREADS) {
            const int row = i / (BLOCK_N / 8), col = i % (BLOCK_N / 8) * 8;
            copy_16(&B_smem[buffer][row][col], B + size_t(off_k + row) * n + off_n + col);
        }
        commit();
    };
    float C_rmem[WARP_M / MMA_M][WARP_N / MMA_N][4] = {};
    stage(0, 0);
    for (int k = 0; k < n / BLOCK_K; ++k) {
        if ((k + 1) * BLOCK_K < n) {
            stage((k + 1) % 2, (k + 1) * BLOCK_K);
            wait<1>();
        } else {
            wait<0>();
        }
        __syncthreads();
#pragma unroll
        for (int step = 0; step < BLOCK_K; step += MMA_K) {
            unsigned a[WARP_M / MMA_M][4], b[WARP_N / MMA_K][4];
#pragma unroll
            for (int m = 0; m < WARP_M / MMA_M; ++m)
                load_matrices<false>(a[m], &A_smem[k % 2][warp_m + m * MMA_M + lane_id % 16][step + lane_id / 16 * 8]);
#pragma unroll
            for (int j = 0; j < WARP_N / MMA_K; ++j)
                load_matrices<true>(b[j], &B_smem[k % 2][step + lane_id % 16][warp_n + j * 16 + lane_id / 16 * 8]);
#pragma unroll
            for (int m = 0; m < WARP_M / MMA_M; ++m)
#pragma unroll
                for (int j = 0; j < WARP_N / MMA_N; ++j)
                    mma(C_rmem[m][j], a[m], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
        __syncthreads();  // the next turn overwrites this stage
    }
#pragma unroll
    for (int m = 0; m < WARP_M / MMA_M; ++m)
#pragma unroll
        for (int j = 0; j < WARP_N / MMA_N; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = off_m + warp_m + m * MMA_M + lane_id / 4 + h * 8;
                const int col = off_n + warp_n + j * MMA_N + lane_id % 4 * 2;
                *reinterpret_cast<unsigned*>(C + size_t(row) * n + col) =
                    packed(C_rmem[m][j][h * 2], C_rmem[m][j][h * 2 + 1]);
            }
}
KATA_EXPORT void hgemm(const half* A, const half* B, half* C, int n, cudaStream_t stream) {
    hgemm_kernel<<<dim3(n / BLOCK_N, n / BLOCK_M), GEMM_THREADS, 0, stream>>>(A, B, C, n);
}

// ---- O = softmax(Q K^T / 8) V of one head a block row; D = 64, n a multiple of 64

constexpr int HEAD = 64, ROWS = 64, FLASH_THREADS = 128, PITCH = HEAD + PAD;

__device__ __forceinline__ void stage_rows(half (*tile_smem)[PITCH], const half* from) {
    for (int i = threadIdx.x; i < ROWS * HEAD / 8; i += FLASH_THREADS)
        copy_16(&tile_smem[i / (HEAD / 8)][i % (HEAD / 8) * 8], from + i * 8);
}

__global__ void __launch_bounds__(FLASH_THREADS)
    flash_kernel(const half* Q, const half* K, const half* V, half* O, int n) {
    __shared__ __align__(16) half Q_smem[ROWS][PITCH], K_smem[2][ROWS][PITCH], V_smem[2][ROWS][PITCH];
    const int lane_id = threadIdx.x % 32, warp_id = threadIdx.x / 32, tiles = n / ROWS;
    const size_t head = size_t(blockIdx.y) * n * HEAD, off_q = head + size_t(blockIdx.x) * ROWS * HEAD;
    stage_rows(Q_smem, Q + off_q);
    stage_rows(K_smem[0], K + head);
    stage_rows(V_smem[0], V + head);
    commit();
    unsigned q[HEAD / MMA_K][4];
    float o[HEAD / MMA_N][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (int t = 0; t < tiles; ++t) {
        if (t + 1 < tiles) {
            stage_rows(K_smem[(t + 1) % 2], K + head + size_t(t + 1) * ROWS * HEAD);
            stage_rows(V_smem[(t + 1) % 2], V + head + size_t(t + 1) * ROWS * HEAD);
            commit();
            wait<1>();
        } else {
            wait<0>();
        }
        __syncthreads();
        if (t == 0)
#pragma unroll
            for (int d = 0; d < HEAD / MMA_K; ++d)
                load_matrices<false>(q[d], &Q_smem[warp_id * MMA_M + lane_id % 16][d * MMA_K + lane_id / 16 * 8]);
        // S = Q K^T: rows of K are columns of the second operand
        float s[ROWS / MMA_N][4] = {};
#pragma unroll
        for (int j = 0; j < ROWS / 16; ++j)
#pragma unroll
            for (int d = 0; d < HEAD / MMA_K; ++d) {
                unsigned k[4];
                load_matrices<false>(k, &K_smem[t % 2][j * 16 + lane_id % 16][d * MMA_K + lane_id / 16 * 8]);
                mma(s[j * 2], q[d], k[0], k[2]);
                mma(s[j * 2 + 1], q[d], k[1], k[3]);
            }
#pragma unroll
        for (int h = 0; h < 2; ++h) {  // a lane holds elements of two rows, shared by four lanes
            float now = most[h], part = 0;
#pragma unroll
            for (int j = 0; j < ROWS / MMA_N; ++j) now = fmaxf(now, fmaxf(s[j][h * 2], s[j][h * 2 + 1]));
            now = fmaxf(now, __shfl_xor_sync(0xffffffff, now, 1));
            now = fmaxf(now, __shfl_xor_sync(0xffffffff, now, 2));
            const float scale = __expf((most[h] - now) * 0.125f);
#pragma unroll
            for (int j = 0; j < ROWS / MMA_N; ++j)
#pragma unroll
                for (int i = 0; i < 2; ++i) part += s[j][h * 2 + i] = __expf((s[j][h * 2 + i] - now) * 0.125f);
#pragma unroll
            for (int j = 0; j < HEAD / MMA_N; ++j) o[j][h * 2] *= scale, o[j][h * 2 + 1] *= scale;
            sum[h] = sum[h] * scale + part;
            most[h] = now;
        }
#pragma unroll
        for (int j = 0; j < ROWS / MMA_K; ++j) {
            const unsigned p[4] = {
                packed(s[j * 2][0], s[j * 2][1]), packed(s[j * 2][2], s[j * 2][3]),
                packed(s[j * 2 + 1][0], s[j * 2 + 1][1]), packed(s[j * 2 + 1][2], s[j * 2 + 1][3])};
#pragma unroll
            for (int d = 0; d < HEAD / 16; ++d) {
                unsigned v[4];
                load_matrices<true>(v, &V_smem[t % 2][j * MMA_K + lane_id % 16][d * 16 + lane_id / 16 * 8]);
                mma(o[d * 2], p, v[0], v[1]);
                mma(o[d * 2 + 1], p, v[2], v[3]);
            }
        }
        __syncthreads();  // the next turn overwrites this stage
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float total = sum[h] + __shfl_xor_sync(0xffffffff, sum[h], 1);
        total += __shfl_xor_sync(0xffffffff, total, 2);
        const size_t row = off_q + size_t(warp_id * MMA_M + lane_id / 4 + h * 8) * HEAD;
#pragma unroll
        for (int j = 0; j < HEAD / MMA_N; ++j)
            *reinterpret_cast<unsigned*>(O + row + j * MMA_N + lane_id % 4 * 2) =
                packed(o[j][h * 2] / total, o[j][h * 2 + 1] / total);
    }
}
KATA_EXPORT void flash(const half* Q, const half* K, const half* V, half* O, int heads, int n, cudaStream_t stream) {
    flash_kernel<<<dim3(n / ROWS, heads), FLASH_THREADS, 0, stream>>>(Q, K, V, O, n);
}
