// linear_attention_causal_f32: O[t] = sum over s <= t of (Q[t] . K[s]) V[s], attention without the softmax
//
// Shapes     Q, K, V, O: [B, H, N, 64] f32, contiguous, 16-byte aligned bases, any B, H >= 1, N >= 0; all values finite
// Technique  chunks of 32 tokens: one 64x64 state, S = sum of K[s] V[s]^T, stands for all tokens before the chunk, and
//            queries meet keys only within the chunk. Segments of chunks run in parallel, each from its state. A prefix
//            sum over the segments' sums gives the states
// New        over flash_attn_online_f16: no softmax, so the order of the sums is free, and the work grows with N
//            instead of N^2
// Bound      FMA throughput and shared memory, about equally
#include "kata.cuh"
#include <algorithm>
#include <cstdint>

constexpr int D = 64;      // columns of Q, K, V and O
constexpr int CHUNK = 32;  // tokens
constexpr int THREADS = 128;
constexpr int MIN_BLOCKS = 4;      // per SM: 45.5 KB of shared memory each, and 128 registers per thread
constexpr int VEC = 4;             // floats in one access of 16 bytes
constexpr int PAD = 4;             // floats that pad a row: eight rows at one column are then in different banks
constexpr int MIN_SEGMENT = 2;     // chunks; fewer do not justify a state
constexpr int MAX_SEGMENTS = 512;  // of all heads together, if these are cut: nearly one wave of 132 SMs

// What a thread computes: VEC columns of every ROW_STEP-th row of O, every COL_THREADS-th column of the same rows of P,
// and VEC columns of neighbouring rows of S.
constexpr int COL_THREADS = D / VEC;
constexpr int ROW_STEP = THREADS / COL_THREADS;
constexpr int ROWS = CHUNK / ROW_STEP;  // of O and P
constexpr int COLS_P = CHUNK / COL_THREADS;
constexpr int ROWS_S = D / ROW_STEP;
static_assert(ROWS * ROW_STEP == CHUNK && COLS_P * COL_THREADS == CHUNK, "the threads' parts make up a chunk");
static_assert(COL_THREADS == 16, "a warp's lanes are two rows of threads");
static_assert(ROWS_S % VEC == 0, "a thread's rows of S are read as vectors of a row of K");

// The state that a segment starts from, [B * H, segments, D, D]; before the scan, what the preceding segment adds to
// it. Concurrent launches would share them.
alignas(16) __device__ float states[MAX_SEGMENTS * D * D];

// This thread's position in ROW_STEP x COL_THREADS. In a warp, lanes n and n ^ 1 have the same row, and lanes n and
// n ^ 2 the same columns. A load of 16 bytes per lane, of either operand, then returns half as many different bytes in
// half the cycles.
__device__ inline int thread_row() {
    return threadIdx.x / 32 * 2 + threadIdx.x / 2 % 2;
}

__device__ inline int thread_col() {
    return threadIdx.x % 32 / 4 * 2 + threadIdx.x % 2;
}

// global -> shared: the rows of a chunk, of which `left` exist. The others become 0, which adds nothing to any sum.
template <int STRIDE>
__device__ inline void load_tile(float (&smem)[CHUNK][STRIDE], const float* gmem, int left) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int row = i * ROW_STEP + threadIdx.x / COL_THREADS;
        const int col = threadIdx.x % COL_THREADS * VEC;
        float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
        if (row < left) x = *reinterpret_cast<const float4*>(gmem + row * D + col);
        *reinterpret_cast<float4*>(&smem[row][col]) = x;
    }
}

__device__ inline void load_vec(float (&to)[VEC], const float* from) {
    const float4 x = *reinterpret_cast<const float4*>(from);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}

__device__ inline void store_smem(float* to, const float (&from)[VEC]) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
}

// A plain assignment may become four stores: nvcc does not always see that the address is a multiple of 16.
__device__ inline void store_gmem(float* to, const float (&from)[VEC]) {
    __stcg(reinterpret_cast<float4*>(to), make_float4(from[0], from[1], from[2], from[3]));
}

// P += Q K^T
__device__ inline void add_qk(
    float (&P_rmem)[ROWS][COLS_P], const float (&Q_smem)[CHUNK][D + PAD], const float (&K_smem)[CHUNK][D + PAD]) {
    const int row = thread_row();
    const int col = thread_col();
#pragma unroll 4
    for (int d = 0; d < D; d += VEC) {
        float q[ROWS][VEC], k[COLS_P][VEC];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) load_vec(q[i], &Q_smem[row + i * ROW_STEP][d]);
#pragma unroll
        for (int j = 0; j < COLS_P; ++j) load_vec(k[j], &K_smem[col + j * COL_THREADS][d]);
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
            for (int j = 0; j < COLS_P; ++j)
#pragma unroll
                for (int v = 0; v < VEC; ++v) P_rmem[i][j] += q[i][v] * k[j][v];
    }
}

// O += A B, for Q S and for P V
template <int INNER, int STRIDE>
__device__ inline void add_product(
    float (&O_rmem)[ROWS][VEC], const float (&A_smem)[CHUNK][STRIDE], const float (&B_smem)[INNER][D]) {
    const int row = thread_row();
    const int col = thread_col() * VEC;
#pragma unroll 4
    for (int inner = 0; inner < INNER; inner += VEC) {
        float a[ROWS][VEC];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) load_vec(a[i], &A_smem[row + i * ROW_STEP][inner]);
#pragma unroll
        for (int v = 0; v < VEC; ++v) {
            float b[VEC];
            load_vec(b, &B_smem[inner + v][col]);
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < VEC; ++j) O_rmem[i][j] += a[i][v] * b[j];
        }
    }
}

// S += K^T V
__device__ inline void add_kv(
    float (&S_rmem)[ROWS_S][VEC], const float (&K_smem)[CHUNK][D + PAD], const float (&V_smem)[CHUNK][D]) {
    const int row = thread_row() * ROWS_S;
    const int col = thread_col() * VEC;
    // TODO(1): Add one outer product per token: column `token` of K^T is row `token` of K. (~11 lines)
#pragma unroll 4
    for (int token = 0; token < CHUNK; ++token) {
        float k[ROWS_S / VEC][VEC], v[VEC];
#pragma unroll
        for (int i = 0; i < ROWS_S / VEC; ++i) load_vec(k[i], &K_smem[token][row + i * VEC]);
        load_vec(v, &V_smem[token][col]);
#pragma unroll
        for (int i = 0; i < ROWS_S; ++i)
#pragma unroll
            for (int j = 0; j < VEC; ++j) S_rmem[i][j] += k[i / VEC][i % VEC] * v[j];
    }
    // END TODO(1)
}

// What each segment, except a head's last, adds to the state of the next segment.
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS) linear_attention_causal_f32_states_kernel(
    const float* __restrict__ K,  // [B * H, N, D]
    const float* __restrict__ V,  // [B * H, N, D]
    int N, int segments, int segment_chunks) {
    alignas(16) __shared__ float K_smem[CHUNK][D + PAD];
    alignas(16) __shared__ float V_smem[CHUNK][D];
    const int64_t head = blockIdx.x / (segments - 1);
    const int segment = blockIdx.x % (segments - 1);
    float S_rmem[ROWS_S][VEC] = {};
    // TODO(2): The sum of K^T V over the chunks of this segment. Two barriers per chunk. (~8 lines)
    for (int chunk = segment * segment_chunks; chunk < (segment + 1) * segment_chunks; ++chunk) {
        const int off_n = chunk * CHUNK;
        load_tile(K_smem, K + (head * N + off_n) * D, N - off_n);
        load_tile(V_smem, V + (head * N + off_n) * D, N - off_n);
        __syncthreads();  // a thread reads what others loaded
        add_kv(S_rmem, K_smem, V_smem);
        __syncthreads();  // the next chunk overwrites both
    }
    // END TODO(2)
    float* const state = states + (head * segments + segment + 1) * (D * D);
    const int row = thread_row() * ROWS_S;
#pragma unroll
    for (int i = 0; i < ROWS_S; ++i) store_gmem(state + (row + i) * D + thread_col() * VEC, S_rmem[i]);
}

// Turns what each segment adds into what each segment starts from: a prefix sum over a head's segments, one thread per
// element.
__global__ void __launch_bounds__(THREADS) linear_attention_causal_f32_prefix_kernel(int segments) {
    constexpr int BATCH = 8;  // loads in flight at once
    const int64_t head = blockIdx.x / (D * D / THREADS);
    float* const element = states + head * segments * (D * D) + blockIdx.x % (D * D / THREADS) * THREADS + threadIdx.x;
    float sum = 0.0f;
    for (int first = 1; first < segments; first += BATCH) {
        // TODO(3): Load the elements of the next BATCH segments, as far as these exist. Add each to the sum, and store
        //   the sum in its place. All loads come before the first store. (~8 lines)
        float added[BATCH] = {};
#pragma unroll
        for (int i = 0; i < BATCH; ++i)
            if (first + i < segments) added[i] = element[(first + i) * (D * D)];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            sum += added[i];
            if (first + i < segments) element[(first + i) * (D * D)] = sum;
        }
        // END TODO(3)
    }
}

// O of one segment, chunk after chunk. S is the state before the chunk: O = Q S + mask(Q K^T) V, then S += K^T V.
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS) linear_attention_causal_f32_kernel(
    const float* __restrict__ Q,  // [B * H, N, D]
    const float* __restrict__ K,  // [B * H, N, D]
    const float* __restrict__ V,  // [B * H, N, D]
    float* __restrict__ O,        // [B * H, N, D]
    int N, int segments, int segment_chunks) {
    alignas(16) __shared__ float Q_smem[CHUNK][D + PAD];
    alignas(16) __shared__ float K_smem[CHUNK][D + PAD];
    alignas(16) __shared__ float V_smem[CHUNK][D];
    alignas(16) __shared__ float P_smem[CHUNK][CHUNK + PAD];
    alignas(16) __shared__ float S_smem[D][D];
    const int64_t head = blockIdx.x / segments;
    const int segment = blockIdx.x % segments;
    const int row = thread_row();
    const int col = thread_col() * VEC;
    float S_rmem[ROWS_S][VEC] = {};
    if (segment > 0) {
        const float* const state = states + int64_t{blockIdx.x} * (D * D);
#pragma unroll
        for (int i = 0; i < ROWS_S; ++i) load_vec(S_rmem[i], state + (row * ROWS_S + i) * D + col);
    }
    const int off_end = min(N, (segment + 1) * segment_chunks * CHUNK);
    for (int off_n = segment * segment_chunks * CHUNK; off_n < off_end; off_n += CHUNK) {
        const int64_t off = (head * N + off_n) * D;
        load_tile(Q_smem, Q + off, N - off_n);
        load_tile(K_smem, K + off, N - off_n);
        load_tile(V_smem, V + off, N - off_n);
        float O_rmem[ROWS][VEC] = {};
        // TODO(4): Store S in shared memory for the product Q S. Store P = Q K^T of this chunk in shared memory, with 0
        //   for every key after the query. Compute both products, then S for the next chunk. Three barriers.
        //   (~18 lines)
#pragma unroll
        for (int i = 0; i < ROWS_S; ++i) store_smem(&S_smem[row * ROWS_S + i][col], S_rmem[i]);
        __syncthreads();  // a thread reads what others loaded and stored
        float P_rmem[ROWS][COLS_P] = {};
        add_qk(P_rmem, Q_smem, K_smem);
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
            for (int j = 0; j < COLS_P; ++j) {
                const int query = row + i * ROW_STEP;
                const int key = thread_col() + j * COL_THREADS;
                P_smem[query][key] = key <= query ? P_rmem[i][j] : 0.0f;
            }
        add_product(O_rmem, Q_smem, S_smem);
        __syncthreads();  // a thread reads what others stored of P
        add_product(O_rmem, P_smem, V_smem);
        add_kv(S_rmem, K_smem, V_smem);
        // The next chunk overwrites all tiles.
        __syncthreads();
        // END TODO(4)
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            const int query = row + i * ROW_STEP;
            if (off_n + query < N) store_gmem(O + off + query * D + col, O_rmem[i]);
        }
    }
}

KATA_EXPORT void linear_attention_causal_f32(
    const float* Q, const float* K, const float* V, float* O, int B, int H, int N, cudaStream_t stream) {
    const int heads = B * H;
    if (heads == 0 || N == 0) return;  // a grid of no blocks is an invalid launch
    const int chunks = (N - 1) / CHUNK + 1;
    int segments = 0;
    // TODO(5): As many segments per head as MAX_SEGMENTS allows for all heads and as MIN_SEGMENT allows, rounded up:
    //   the last may be shorter. (~1 line)
    segments = std::clamp(MAX_SEGMENTS / heads, 1, (chunks - 1) / MIN_SEGMENT + 1);
    // END TODO(5)
    const int segment_chunks = (chunks - 1) / segments + 1;  // the last segments may have fewer, or none
    // A stream runs them in order.
    if (segments > 1) {
        linear_attention_causal_f32_states_kernel<<<heads*(segments - 1), THREADS, 0, stream>>>(
            K, V, N, segments, segment_chunks);
        linear_attention_causal_f32_prefix_kernel<<<heads*(D * D / THREADS), THREADS, 0, stream>>>(segments);
    }
    linear_attention_causal_f32_kernel<<<heads * segments, THREADS, 0, stream>>>(
        Q, K, V, O, N, segments, segment_chunks);
}
