// Wrong: threads whose columns are past the end leave before the ballot, and nobody looks at the indices that were theirs
// Kata: index_add_few_f32
// Sim: wrong answer
// Gpu: wrong answer | time-out: lanes that have left vote 0, as a rule
#include "kata.cuh"
#include <algorithm>
#include <cstdint>

constexpr int THREADS = 256;
constexpr int VEC = 4;                            // floats per access: float4 is 16 bytes
constexpr int LOADS = 2;                          // of a thread and row, on their way at once
constexpr int PER_BLOCK = THREADS * VEC * LOADS;  // columns per block
constexpr int MAX_GRID_Y = 65535;                 // what CUDA allows
constexpr int WARP_SIZE = 32;
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "the ballot names all 32 lanes, so every warp must be whole");

__device__ __forceinline__ float4 add(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__global__ void __launch_bounds__(THREADS) index_add_few_f32_kernel(
    const float* __restrict__ base,     // [rows, dim]
    const int64_t* __restrict__ index,  // [n]
    const float* __restrict__ source,   // [n, dim]
    float* __restrict__ out,            // [rows, dim]
    int n, int rows, int dim) {
    const int lane_id = threadIdx.x % WARP_SIZE;
    // This thread owns VEC columns from col on, and as many THREADS * VEC further on, of every row of its block.
    const int64_t col = static_cast<int64_t>(blockIdx.x) * PER_BLOCK + threadIdx.x * VEC;
    if (col >= dim) return;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        const int64_t row_start = static_cast<int64_t>(row) * dim;
        float4 sum_rmem[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int64_t at = col + i * THREADS * VEC;
            if (at < dim) sum_rmem[i] = *reinterpret_cast<const float4*>(base + row_start + at);
        }
        // Every thread of a warp walks over all indices, also one whose columns are past the end: the ballot needs it.
        for (int first = 0; first < n; first += WARP_SIZE) {
            const bool names_row = first + lane_id < n && index[first + lane_id] == row;
            unsigned named = __ballot_sync(FULL_MASK, names_row);
            for (; named != 0; named &= named - 1) {  // clears the lowest bit
                const int j = first + __ffs(named) - 1;
                const float* source_row = source + static_cast<int64_t>(j) * dim;
#pragma unroll
                for (int i = 0; i < LOADS; ++i) {
                    const int64_t at = col + i * THREADS * VEC;
                    if (at < dim) sum_rmem[i] = add(sum_rmem[i], *reinterpret_cast<const float4*>(source_row + at));
                }
            }
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int64_t at = col + i * THREADS * VEC;
            if (at < dim) *reinterpret_cast<float4*>(out + row_start + at) = sum_rmem[i];
        }
    }
}

KATA_EXPORT void index_add_few_f32(
    const float* base, const int64_t* index, const float* source, float* out, int n, int rows, int dim,
    cudaStream_t stream) {
    const dim3 blocks((dim - 1) / PER_BLOCK + 1, std::min(rows, MAX_GRID_Y));
    index_add_few_f32_kernel<<<blocks, THREADS, 0, stream>>>(base, index, source, out, n, rows, dim);
}
