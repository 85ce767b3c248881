// argmax_row_f32: idx[row] = the lowest column that has the row's maximum; a nan counts as larger than any number
//
// Shapes     x: [rows, cols] f32, row-major, contiguous, 16-byte aligned base, idx: [rows] i32, any rows, cols >= 1
// Technique  one block per row; value and column are one 64-bit number, and the largest of these is the answer
// New        over reduce_shuffle_f32x4: the operator carries a column, and gives the same answer in any order
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 512;
constexpr int LOADS = 4;  // per thread, in flight at once
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the candidates of all warps");

// A value's rank in the upper half, and below it the columns that are left after its own: of equal ranks the lowest
// column is the largest candidate. 0 is smaller than every candidate.
using Candidate = unsigned long long;

// A number that is larger for a larger value, the same for 0 and -0, and the largest for nan. Never 0.
__device__ __forceinline__ uint32_t rank_of(float value) {
    uint32_t rank = 0;
    // TODO(1): The bits of a float are ordered as integers, apart from the sign: of two negative numbers, the one with
    //   larger bits is smaller. (~3 lines)
    const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 + 0 is 0
    rank = bits >> 31 != 0 ? ~bits : bits | 0x80000000;
    if (value != value) rank = 0xffffffff;
    // END TODO(1)
    return rank;
}

__device__ __forceinline__ Candidate candidate(float value, int col) {
    return static_cast<Candidate>(rank_of(value)) << 32 | (0xffffffff - static_cast<uint32_t>(col));
}

// The largest candidate of the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ Candidate warp_reduce_max(Candidate best) {
    // TODO(2): Reduce all 64 bits together: neither half is the answer alone. (~2 lines)
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        best = max(best, __shfl_xor_sync(FULL_MASK, best, offset));
    // END TODO(2)
    return best;
}

// Pack is what one access moves. Its VEC elements divide cols: a vector lies in the row as a whole or not at all, and
// every row starts at a multiple of its size.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(float);

template <typename Pack>
__global__ void __launch_bounds__(THREADS)
    argmax_row_f32_kernel(const float* __restrict__ x, int* __restrict__ idx, int cols) {
    __shared__ Candidate best_smem[WARPS];
    const int tid = threadIdx.x;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    Candidate best = 0;
    // Vectors of this thread are THREADS vectors apart, LOADS of them at a time.
    constexpr int STEP = LOADS * THREADS * VEC<Pack>;
    for (int64_t begin = 0; begin < cols; begin += STEP) {
        alignas(Pack) float x_rmem[LOADS][VEC<Pack>];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int64_t col = begin + (i * THREADS + tid) * VEC<Pack>;
            if (col < cols) *reinterpret_cast<Pack*>(x_rmem[i]) = *reinterpret_cast<const Pack*>(x_row + col);
        }
        // TODO(3): Compare the best with every element that was loaded. (~6 lines)
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int64_t col = begin + (i * THREADS + tid) * VEC<Pack>;
#pragma unroll
            for (int j = 0; j < VEC<Pack>; ++j)
                if (col < cols) best = max(best, candidate(x_rmem[i][j], static_cast<int>(col) + j));
        }
        // END TODO(3)
    }
    best = warp_reduce_max(best);
    if (tid % WARP_SIZE == 0) best_smem[tid / WARP_SIZE] = best;
    // The first warp reads what all the other warps wrote.
    __syncthreads();
    if (tid >= WARP_SIZE) return;
    best = warp_reduce_max(tid < WARPS ? best_smem[tid] : 0);
    // TODO(4): One thread stores the column. (~1 line)
    if (tid == 0) idx[blockIdx.x] = static_cast<int>(0xffffffff - static_cast<uint32_t>(best));
    // END TODO(4)
}

KATA_EXPORT void argmax_row_f32(const float* x, int* idx, int rows, int cols, cudaStream_t stream) {
    // All rows start at a multiple of 16 bytes only where cols is a multiple of 4.
    const auto kernel = cols % 4 == 0 ? argmax_row_f32_kernel<float4> : argmax_row_f32_kernel<float>;
    kernel<<<rows, THREADS, 0, stream>>>(x, idx, cols);
}
