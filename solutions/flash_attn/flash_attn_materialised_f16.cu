// flash_attn_materialised_f16: O = softmax(Q K^T / sqrt(D)) V in three kernels, with all logits in memory
//
// Shapes     Q, K, V, O: [B, H, N, D] f16, contiguous, 16-byte aligned bases, D one of 32, 64, 96, 128
// Technique  S = Q K^T / sqrt(D) in 32x32 tiles, softmax of the rows of S in place, O = S V in 32x32 tiles
// New        over safe_softmax_f32: a matrix product before it and another after it. S takes N * N floats per head, so
//            the launcher computes it for a few heads at a time, in SCRATCH bytes
// Bound      shared memory in the products. With faster products: memory, because S is written twice and read four
//            times, and is N / D times as large as Q
#include "kata.cuh"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cuda_fp16.h>

constexpr int TILE = 32;              // of queries, of keys, of D
constexpr int THREADS = TILE * TILE;  // one per element of a tile
constexpr int WARP_SIZE = 32;
constexpr int WARPS = 8;                       // rows of S per block of the softmax, one per warp
constexpr int64_t SCRATCH = int64_t{1} << 28;  // bytes for S, or those of one head if that needs more
static_assert(TILE == WARP_SIZE, "a warp's lanes are the columns of a tile");
// Floats that pad a row in shared memory. The elements of a column are then in different banks.
constexpr int PAD = 1;

// global -> shared: one tile of X, whose rows have cols columns. The tile starts at X[0]. It has `left` rows and
// `left_cols` columns; the rest of X_smem becomes 0.
template <typename T>
__device__ inline void load_tile(float (&smem)[TILE][TILE + PAD], const T* X, int cols, int left, int left_cols) {
    const int row = threadIdx.x / TILE;
    const int col = threadIdx.x % TILE;
    smem[row][col] = row < left && col < left_cols ? static_cast<float>(X[int64_t{row} * cols + col]) : 0.0f;
}

// Warp reductions; every lane gets the result. All 32 lanes must call them together.
__device__ inline float warp_max(float value) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, offset));
    return value;
}

__device__ inline float warp_sum(float value) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffff, value, offset);
    return value;
}

// S = scale * Q K^T
__global__ void __launch_bounds__(THREADS) flash_attn_materialised_f16_logits_kernel(
    const half* __restrict__ Q,  // [heads, N, D]
    const half* __restrict__ K,  // [heads, N, D]
    float* __restrict__ S,       // [heads, N, N]
    int N, int D, float scale) {
    __shared__ float Q_smem[TILE][TILE + PAD];
    __shared__ float K_smem[TILE][TILE + PAD];
    // Consecutive blocks go along the keys, then the queries, then the heads.
    const int tiles = (N - 1) / TILE + 1;
    const int off_k = blockIdx.x % tiles * TILE;
    const int off_q = blockIdx.x / tiles % tiles * TILE;
    const int64_t head = blockIdx.x / tiles / tiles;
    const half* const Q_tile = Q + (head * N + off_q) * D;
    const half* const K_tile = K + (head * N + off_k) * D;
    const int row = threadIdx.x / TILE;
    const int col = threadIdx.x % TILE;
    float sum = 0.0f;
    for (int off_d = 0; off_d < D; off_d += TILE) {
        load_tile(Q_smem, Q_tile + off_d, D, N - off_q, TILE);
        load_tile(K_smem, K_tile + off_d, D, N - off_k, TILE);
        __syncthreads();  // a thread reads rows that others loaded
        // TODO(1): Add the products of this slice of D. A column of S is a key, which is a row of K_smem. (~2 lines)
#pragma unroll
        for (int d = 0; d < TILE; ++d) sum += Q_smem[row][d] * K_smem[col][d];
        // END TODO(1)
        __syncthreads();  // the next slice overwrites both
    }
    if (off_q + row < N && off_k + col < N) S[(head * N + off_q + row) * N + off_k + col] = scale * sum;
}

// The rows of S become weights: exp(S - maximum) / sum of exp(S - maximum).
__global__ void __launch_bounds__(WARPS* WARP_SIZE)
    flash_attn_materialised_f16_softmax_kernel(float* __restrict__ S, int64_t rows, int N) {  // S: [rows, N]
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int64_t row = int64_t{blockIdx.x} * WARPS + threadIdx.x / WARP_SIZE;
    if (row >= rows) return;
    float* const S_row = S + row * N;
    // TODO(2): Safe softmax in three passes, one warp per row: its maximum, the sum of the exponentials, the weights.
    //   (~7 lines)
    float max = -INFINITY;
    for (int key = lane_id; key < N; key += WARP_SIZE) max = fmaxf(max, S_row[key]);
    max = warp_max(max);
    float sum = 0.0f;
    for (int key = lane_id; key < N; key += WARP_SIZE) sum += __expf(S_row[key] - max);
    const float inverse = 1.0f / warp_sum(sum);
    for (int key = lane_id; key < N; key += WARP_SIZE) S_row[key] = __expf(S_row[key] - max) * inverse;
    // END TODO(2)
}

// O = S V
__global__ void __launch_bounds__(THREADS) flash_attn_materialised_f16_values_kernel(
    const float* __restrict__ S,  // [heads, N, N]
    const half* __restrict__ V,   // [heads, N, D]
    half* __restrict__ O,         // [heads, N, D]
    int N, int D) {
    __shared__ float S_smem[TILE][TILE + PAD];
    __shared__ float V_smem[TILE][TILE + PAD];
    // Consecutive blocks go along D, then the queries, then the heads.
    const int tiles_q = (N - 1) / TILE + 1;
    const int tiles_d = D / TILE;
    const int off_d = blockIdx.x % tiles_d * TILE;
    const int off_q = blockIdx.x / tiles_d % tiles_q * TILE;
    const int64_t head = blockIdx.x / tiles_d / tiles_q;
    const float* const S_tile = S + (head * N + off_q) * N;
    const half* const V_tile = V + head * N * D + off_d;
    const int row = threadIdx.x / TILE;
    const int col = threadIdx.x % TILE;
    float sum = 0.0f;
    for (int off_k = 0; off_k < N; off_k += TILE) {
        // TODO(3): Stage 32 keys of the weights and of V, then add their products. Past the last key both must be 0: a
        //   row of V that does not exist may hold anything. Two barriers. (~6 lines)
        load_tile(S_smem, S_tile + off_k, N, N - off_q, N - off_k);
        load_tile(V_smem, V_tile + int64_t{off_k} * D, D, N - off_k, TILE);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; ++k) sum += S_smem[row][k] * V_smem[k][col];
        __syncthreads();
        // END TODO(3)
    }
    if (off_q + row < N) O[(head * N + off_q + row) * D + off_d + col] = __float2half_rn(sum);
}

KATA_EXPORT void flash_attn_materialised_f16(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    const int heads = B * H;
    const int64_t logits = int64_t{N} * N;  // of a head
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(D)));
    const int tiles = (N - 1) / TILE + 1;
    const int64_t fit = SCRATCH / (logits * static_cast<int64_t>(sizeof(float)));
    const int at_once = static_cast<int>(std::clamp<int64_t>(fit, 1, heads));
    float* S = nullptr;
    if (cudaMallocAsync(&S, at_once * logits * sizeof(float), stream) != cudaSuccess)
        return;  // the caller asks for the last error
    for (int head = 0; head < heads; head += at_once) {
        const int count = std::min(at_once, heads - head);
        const int64_t from = int64_t{head} * N * D;
        const int64_t rows = int64_t{count} * N;
        // TODO(4): Launch the three kernels for count heads, starting here. The stream runs them in order. The next
        //   iteration comes after them, so S can be reused. (~6 lines)
        flash_attn_materialised_f16_logits_kernel<<<count * tiles * tiles, THREADS, 0, stream>>>(
            Q + from, K + from, S, N, D, scale);
        flash_attn_materialised_f16_softmax_kernel<<<(rows - 1) / WARPS + 1, WARPS * WARP_SIZE, 0, stream>>>(
            S, rows, N);
        flash_attn_materialised_f16_values_kernel<<<count * tiles*(D / TILE), THREADS, 0, stream>>>(
            S, V + from, O + from, N, D);
        // END TODO(4)
    }
    cudaFreeAsync(S, stream);
}
