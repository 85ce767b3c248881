// rms_norm_backward_f32: dx and dweight of rms_norm, with x_hat = x * rstd and g = dy * weight
//
//   dx[row, col] = rstd * (g - x_hat * mean of g * x_hat over the row)
//   dweight[col] = sum of dy * x_hat over the rows
//
// Shapes     x, dy, dx: [rows, cols], weight, dweight: [cols], rstd: [rows] f32, row-major, contiguous, 16-byte aligned
//            bases, any rows >= 1, cols in 1..8192
// Technique  each block handles many rows; while it holds a row in registers, it adds the row to its column sums in
//            shared memory; a second kernel adds the column sums of all blocks
// New        over layer_norm_backward_f32: without the mean there is one sum less along the row, and one less down the
//            columns
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cstdint>

constexpr int MAX_COLS = 8192;
constexpr int THREADS = 512;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int HELD = 16;                  // columns of the row that a thread keeps in registers
constexpr int MIN_ROWS = 4;               // per block: with fewer, its column sums cost as much as its rows
constexpr int MAX_BLOCKS = 2048;          // of rows
constexpr int MAX_PARTIALS = 256 * 8192;  // column sums of all blocks
constexpr int COLUMN_WARPS = 32;          // of the largest block that adds up column sums
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial sums of all warps");
static_assert(THREADS * HELD >= MAX_COLS, "the largest block holds the longest row");
static_assert(MAX_PARTIALS >= MAX_COLS, "at least one block has room for its column sums");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// The sum over the block's threads, in every thread. All threads must call it together.
__device__ __forceinline__ float block_reduce_sum(float sum, float* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    // A slow warp may still read the partial sums of the previous row.
    __syncthreads();
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : 0.0f);
    return sum;
}

// Pack is the type of one access. Its VEC elements divide cols: a row holds only whole vectors, and every row starts at
// a multiple of its size.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(float);

// global or shared -> registers: from[0..VEC-1]
template <typename Pack>
__device__ __forceinline__ void load(float* to_rmem, const float* from) {
    *reinterpret_cast<Pack*>(to_rmem) = *reinterpret_cast<const Pack*>(from);
}

// registers -> global or shared: to[0..VEC-1]
template <typename Pack>
__device__ __forceinline__ void store(float* to, const float* from_rmem) {
    *reinterpret_cast<Pack*>(to) = *reinterpret_cast<const Pack*>(from_rmem);
}

// sums_smem[0..VEC-1] += add_rmem[0..VEC-1]
template <typename Pack>
__device__ __forceinline__ void accumulate(float* sums_smem, const float* add_rmem) {
    alignas(Pack) float sums_rmem[VEC<Pack>];
    load<Pack>(sums_rmem, sums_smem);
#pragma unroll
    for (int i = 0; i < VEC<Pack>; ++i) sums_rmem[i] += add_rmem[i];
    store<Pack>(sums_smem, sums_rmem);
}

// The blocks' column sums, [blocks, cols] each. Concurrent launches would overwrite each other's sums.
alignas(16) __device__ float dweight_gmem[MAX_PARTIALS];

// Two blocks per SM: at most 64 registers per thread, and one block loads while the other computes.
template <typename Pack>
__global__ void __launch_bounds__(THREADS, 2) rms_norm_backward_f32_kernel(
    const float* __restrict__ x, const float* __restrict__ dy, const float* __restrict__ weight,
    const float* __restrict__ rstd, float* __restrict__ dx, int rows, int cols) {
    extern __shared__ float4 dynamic_smem[];
    __shared__ float partial_smem[WARPS];
    float* dweight_smem = reinterpret_cast<float*>(dynamic_smem);  // [cols]
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const float share = 1.0f / cols;
    // The column sums need no barrier: each thread accesses only its own columns.
    for (int col = tid * VEC<Pack>; col < cols; col += threads * VEC<Pack>) {
        alignas(Pack) const float zero_rmem[VEC<Pack>] = {};
        store<Pack>(dweight_smem + col, zero_rmem);
    }
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const int64_t row_begin = row * cols;
        const float row_rstd = rstd[row];
        alignas(Pack) float x_rmem[HELD], dy_rmem[HELD];
        // TODO(1): global -> registers: HELD columns of x and of dy per thread, VEC elements per access of type Pack.
        //   Neighbouring threads load neighbouring vectors, nothing past the row. (~7 lines)
        // END TODO(1)
        float sum = 0.0f;  // of g * x_hat
        // TODO(2): Replace x by x_hat and dy by g = dy * weight in registers. Compute this thread's part of the sum
        //   along the row. Add each column of the row to its sum in shared memory. (~15 lines)
        // END TODO(2)
        sum = block_reduce_sum(sum, partial_smem);
        // TODO(3): registers -> global: store dx with accesses of type Pack, nothing past the row. (~8 lines)
        // END TODO(3)
    }
    // TODO(4): shared -> global: store this block's column sums in its row of dweight_gmem. (~5 lines)
    // END TODO(4)
}

// A block handles 32 columns: one column per lane, and a share of the blocks' sums per warp. The order of the additions
// is fixed.
__global__ void __launch_bounds__(COLUMN_WARPS* WARP_SIZE)
    column_sums_kernel(float* __restrict__ dweight, int blocks, int cols) {
    __shared__ float sums_smem[COLUMN_WARPS][WARP_SIZE];
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int warps = blockDim.x / WARP_SIZE;
    const int col = blockIdx.x * WARP_SIZE + lane_id;
    float sum = 0.0f;
    // TODO(5): Add the rows of dweight_gmem: each warp adds a share of them, then one warp adds the sums of all warps.
    //   All warps handle the same columns. Nothing past the row. (~11 lines)
    // END TODO(5)
}

KATA_EXPORT void rms_norm_backward_f32(
    const float* x, const float* dy, const float* weight, const float* rstd, float* dx, float* dweight, int rows,
    int cols, cudaStream_t stream) {
    // A block has just enough warps to hold a row. The space for the column sums limits the number of blocks.
    const int warps = (cols - 1) / (WARP_SIZE * HELD) + 1;
    const int blocks = std::min({(rows - 1) / MIN_ROWS + 1, MAX_BLOCKS, MAX_PARTIALS / cols});
    const int smem_bytes = cols * static_cast<int>(sizeof(float));
    // All rows start at a multiple of 16 bytes only if 4 divides cols.
    const auto kernel = cols % 4 == 0 ? rms_norm_backward_f32_kernel<float4> : rms_norm_backward_f32_kernel<float>;
    // A launch with more than 48 KB of dynamic shared memory needs this attribute of the kernel.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    kernel<<<blocks, warps * WARP_SIZE, smem_bytes, stream>>>(x, dy, weight, rstd, dx, rows, cols);
    const int column_blocks = (cols - 1) / WARP_SIZE + 1;
    const int column_threads = std::min(blocks, COLUMN_WARPS) * WARP_SIZE;
    column_sums_kernel<<<column_blocks, column_threads, 0, stream>>>(dweight, blocks, cols);
}
