// index_add_few_f32: out = base, then out[index[j], :] += source[j, :] for every j, for few long rows
//
// Shapes     base: [rows, dim] f32, index: [n] i64 with values in 0..rows-1, repeated or not, source: [n, dim] f32,
//            out: [rows, dim] f32, row-major, contiguous, 16-byte aligned bases, any n >= 0, rows >= 1,
//            dim >= 4 a multiple of 4
// Technique  a warp compares 32 indices per ballot with its row of out; sums in registers
// New        over embedding_f32x4_pack: the index says where to write, and the kernel turns this scatter into a gather
// Bound      memory bandwidth, as long as the indices are few
#include "kata.cuh"
#include <algorithm>
#include <cstdint>

constexpr int THREADS = 256;
constexpr int VEC = 4;                            // floats per access: float4 is 16 bytes
constexpr int LOADS = 2;                          // per thread and row, in flight at once
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
    // This thread owns VEC columns from col on, and as many THREADS * VEC further, in every row of its block.
    const int64_t col = static_cast<int64_t>(blockIdx.x) * PER_BLOCK + threadIdx.x * VEC;
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {  // 64 bits: the step past the end may exceed 2^31
        const int64_t row_start = row * dim;
        float4 sum_rmem[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int64_t at = col + i * THREADS * VEC;
            if (at < dim) sum_rmem[i] = *reinterpret_cast<const float4*>(base + row_start + at);
        }
        // Every thread of a warp walks over all indices, even if its columns are past the end: the ballot needs all
        // lanes.
        for (int64_t first = 0; first < n; first += WARP_SIZE) {
            // TODO(1): Find out which of the 32 indices from first on name this row. Each lane looks at one of them:
            //   bit l of named stands for index first + l. There may be no such index. (~2 lines)
            // END TODO(1)
            // TODO(2): Add the named rows of source to the sums, lowest index first. Read no column at or past dim.
            //   (~9 lines)
            // END TODO(2)
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
