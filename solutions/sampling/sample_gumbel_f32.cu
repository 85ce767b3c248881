// sample_gumbel_f32: token[row] = a column drawn with the probabilities softmax(x / T): the lowest column that has the
// largest x / T + noise; where T is 0, the lowest column that has the largest x
//
// Shapes     x: [rows, V] f32, row-major, contiguous, 16-byte aligned base, T: [rows] f32, 0 or at least 0.01, seed:
//            [2] i64, token: [rows] i32, any rows, V >= 1. No nan and no +inf in x; -inf is never drawn, and each row
//            has a finite logit
// Noise      -log(-log u), u = ((w >> 9) + 0.5) / 2^23, with w = word j % 4 of Philox4x32-10 for column j: counter (j /
//            4, row, low half of seed[1], 0), key (low half of seed[0], high half of seed[0])
// Technique  one block per row; a thread draws four words for four columns, and keeps its largest key
// New        over argmax_row_f32: noise that is a function of seed, row and column, so one pass draws a token
// Bound      instructions, next to memory bandwidth
#include "kata.cuh"
#include <cmath>
#include <cstdint>

constexpr int THREADS = 512;
constexpr int LOADS = 2;  // groups per thread, in flight at once
constexpr int GROUP = 4;  // columns of one call of Philox
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the candidates of all warps");

// A key's rank in the upper half, and below it the columns that are left after its own: of equal keys the lowest column
// is the largest candidate. 0 is smaller than every candidate.
using Candidate = unsigned long long;

// A number that is larger for a larger value, and the same for 0 and -0. Never 0.
__device__ __forceinline__ uint32_t rank_of(float value) {
    const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 + 0 is 0
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000;
}

__device__ __forceinline__ Candidate candidate(float value, int col) {
    return static_cast<Candidate>(rank_of(value)) << 32 | (0xffffffff - static_cast<uint32_t>(col));
}

// The largest candidate of the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ Candidate warp_reduce_max(Candidate best) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        best = max(best, __shfl_xor_sync(FULL_MASK, best, offset));
    return best;
}

// Philox4x32-10: four words that look random, a function of counter and key.
__device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
    // TODO(1): Ten rounds. A round has the 64-bit products x' = x * 0xd2511f53, z' = z * 0xcd9e8d57. The next counter
    //   is (hi(z') ^ y ^ key.x, lo(z'), hi(x') ^ w ^ key.y, lo(x')). Then 0x9e3779b9 is added to key.x and 0xbb67ae85
    //   to key.y. (~8 lines)
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint64_t x = static_cast<uint64_t>(counter.x) * 0xd2511f53;
        const uint64_t z = static_cast<uint64_t>(counter.z) * 0xcd9e8d57;
        counter = {
            static_cast<uint32_t>(z >> 32) ^ counter.y ^ key.x, static_cast<uint32_t>(z),
            static_cast<uint32_t>(x >> 32) ^ counter.w ^ key.y, static_cast<uint32_t>(x)};
        key = {key.x + 0x9e3779b9, key.y + 0xbb67ae85};
    }
    // END TODO(1)
    return counter;
}

__device__ __forceinline__ float log2_approx(float value) {
    float log2;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2) : "f"(value));
    return log2;
}

// -log(-log u) for the u of a word.
__device__ __forceinline__ float gumbel(uint32_t word) {
    constexpr float LN_2 = 0.69314718f;
    float noise = 0.0f;
    // TODO(2): u has 24 bits, and so has 1 - u: neither is rounded. Near u = 1, -log u is small, and log2_approx has a
    //   large relative error there; a series in 1 - u has none. (~6 lines)
    const float u = __uint_as_float(word >> 9 | 0x3f800000) - 0x1.fffffep-1f;  // 1 + (w >> 9) / 2^23, less 1 - 2^-24
    const float v = 1.0f - u;
    // -log(1 - v) = v + v^2 / 2 + v^3 / 3 + ..., up to v = 1 / 32 to five digits
    const float series = v * fmaf(v, fmaf(v, 1.0f / 3.0f, 0.5f), 1.0f);
    const float exponential = v < 0x1p-5f ? series : -LN_2 * log2_approx(u);
    noise = -LN_2 * log2_approx(exponential);
    // END TODO(2)
    return noise;
}

// Pack is what one access moves. Its elements divide V: every row starts at a multiple of its size.
template <typename Pack>
__global__ void __launch_bounds__(THREADS) sample_gumbel_f32_kernel(
    const float* __restrict__ x, const float* __restrict__ T, const int64_t* __restrict__ seed, int* __restrict__ token,
    int V) {
    constexpr int VEC = sizeof(Pack) / sizeof(float);
    __shared__ Candidate best_smem[WARPS];
    const int tid = threadIdx.x;
    const uint32_t row = blockIdx.x;
    const float* x_row = x + static_cast<int64_t>(row) * V;
    const bool greedy = T[row] == 0.0f;
    const float scale = greedy ? 1.0f : 1.0f / T[row];
    const float share = greedy ? 0.0f : 1.0f;  // of the noise in a key
    const uint2 key = {static_cast<uint32_t>(seed[0]), static_cast<uint32_t>(seed[0] >> 32)};
    const uint32_t offset = static_cast<uint32_t>(seed[1]);
    float best = -INFINITY;
    int best_col = V;  // no column yet
    constexpr int STEP = LOADS * THREADS * GROUP;
    for (int64_t begin = 0; begin < V; begin += STEP) {
        alignas(Pack) float x_rmem[LOADS][GROUP];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int64_t first = begin + (i * THREADS + tid) * GROUP;
#pragma unroll
            for (int j = 0; j < GROUP; ++j) x_rmem[i][j] = -INFINITY;  // past the row: never drawn
#pragma unroll
            for (int j = 0; j < GROUP; j += VEC)
                if (first + j < V)
                    *reinterpret_cast<Pack*>(&x_rmem[i][j]) = *reinterpret_cast<const Pack*>(x_row + first + j);
        }
        // TODO(3): Draw the words of each group, and compare the best with each column's key. The best of a thread has
        //   its lowest column, since the columns rise. (~14 lines)
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int64_t first = begin + (i * THREADS + tid) * GROUP;
            const uint4 words = philox({static_cast<uint32_t>(first / GROUP), row, offset, 0}, key);
            const uint32_t word_rmem[GROUP] = {words.x, words.y, words.z, words.w};
#pragma unroll
            for (int j = 0; j < GROUP; ++j) {
                const float sum = fmaf(x_rmem[i][j], scale, gumbel(word_rmem[j]) * share);
                if (sum > best) {
                    best = sum;
                    best_col = static_cast<int>(first) + j;
                }
            }
        }
        // END TODO(3)
    }
    // A thread without a finite logit has no candidate.
    Candidate winner = best_col < V ? candidate(best, best_col) : 0;
    winner = warp_reduce_max(winner);
    if (tid % WARP_SIZE == 0) best_smem[tid / WARP_SIZE] = winner;
    // The first warp reads what all the other warps wrote.
    __syncthreads();
    if (tid >= WARP_SIZE) return;
    winner = warp_reduce_max(tid < WARPS ? best_smem[tid] : 0);
    if (tid == 0) token[row] = static_cast<int>(0xffffffff - static_cast<uint32_t>(winner));
}

KATA_EXPORT void sample_gumbel_f32(
    const float* x, const float* T, const int64_t* seed, int* token, int rows, int V, cudaStream_t stream) {
    // All rows start at a multiple of 16 bytes only where V is a multiple of 4.
    const auto kernel = V % GROUP == 0 ? sample_gumbel_f32_kernel<float4> : sample_gumbel_f32_kernel<float>;
    kernel<<<rows, THREADS, 0, stream>>>(x, T, seed, token, V);
}
