// layer_norm_backward_recompute_f32: dx, dweight and dbias of layer_norm, from its output
//
//   x_hat = (y - bias) / weight, g = dy * weight
//   dx[row, col] = rstd * (g - mean of g over the row - x_hat * mean of g * x_hat over the row)
//   dweight[col] = sum of dy * x_hat over the rows, dbias[col] = sum of dy over the rows
//
// Shapes     y, dy, dx: [rows, cols], weight, bias, dweight, dbias: [cols], rstd: [rows] f32, row-major, contiguous,
//            16-byte aligned bases, any rows >= 1, cols in 1..8192, no weight 0
// Technique  as layer_norm_backward_f32, but the normalised row is computed from the output
// New        over layer_norm_backward_f32: x and its mean need not be kept; the next layer keeps the output anyway
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

// Two sums over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float2 warp_reduce_sum(float2 sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
        sum.x += __shfl_xor_sync(FULL_MASK, sum.x, offset);
        sum.y += __shfl_xor_sync(FULL_MASK, sum.y, offset);
    }
    return sum;
}

// Two sums over the block's threads, in every thread. All threads must call it together.
__device__ __forceinline__ float2 block_reduce_sum(float2 sum, float2* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
    // A slow warp may still read the partial sums of the previous row.
    __syncthreads();
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : make_float2(0.0f, 0.0f));
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
alignas(16) __device__ float dbias_gmem[MAX_PARTIALS];

// Two blocks per SM: at most 64 registers per thread, and one block loads while the other computes.
template <typename Pack>
__global__ void __launch_bounds__(THREADS, 2) layer_norm_backward_recompute_f32_kernel(
    const float* __restrict__ y, const float* __restrict__ dy, const float* __restrict__ weight,
    const float* __restrict__ bias, const float* __restrict__ rstd, float* __restrict__ dx, int rows, int cols) {
    extern __shared__ float4 dynamic_smem[];
    __shared__ float2 partial_smem[WARPS];
    float* dweight_smem = reinterpret_cast<float*>(dynamic_smem);  // [cols]
    float* dbias_smem = dweight_smem + cols;                       // [cols]
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const float share = 1.0f / cols;
    // The column sums need no barrier: each thread accesses only its own columns.
    for (int col = tid * VEC<Pack>; col < cols; col += threads * VEC<Pack>) {
        alignas(Pack) const float zero_rmem[VEC<Pack>] = {};
        store<Pack>(dweight_smem + col, zero_rmem);
        store<Pack>(dbias_smem + col, zero_rmem);
    }
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const int64_t row_begin = row * cols;
        const float row_rstd = rstd[row];
        alignas(Pack) float x_rmem[HELD], dy_rmem[HELD];  // x_rmem: first y, then x_hat
        // TODO(1): global -> registers: HELD columns of y and of dy per thread, VEC elements per access of type Pack.
        //   Neighbouring threads load neighbouring vectors, nothing past the row. (~7 lines)
#pragma unroll
        for (int i = 0; i < HELD; i += VEC<Pack>) {
            const int col = i * threads + tid * VEC<Pack>;
            if (col < cols) {
                load<Pack>(x_rmem + i, y + row_begin + col);
                load<Pack>(dy_rmem + i, dy + row_begin + col);
            }
        }
        // END TODO(1)
        float2 sum = make_float2(0.0f, 0.0f);  // of g, and of g * x_hat
        // TODO(2): Replace y by x_hat and dy by g = dy * weight in registers. Compute this thread's part of both sums
        //   along the row. Add each column of the row to its two sums in shared memory. (~18 lines)
#pragma unroll
        for (int i = 0; i < HELD; i += VEC<Pack>) {
            const int col = i * threads + tid * VEC<Pack>;
            if (col < cols) {
                alignas(Pack) float weight_rmem[VEC<Pack>], bias_rmem[VEC<Pack>], dweight_rmem[VEC<Pack>];
                load<Pack>(weight_rmem, weight + col);
                load<Pack>(bias_rmem, bias + col);
                accumulate<Pack>(dbias_smem + col, dy_rmem + i);
#pragma unroll
                for (int j = 0; j < VEC<Pack>; ++j) {
                    // The error is at most two units in the last place. There is no slow path for denormal divisors.
                    x_rmem[i + j] = __fdividef(x_rmem[i + j] - bias_rmem[j], weight_rmem[j]);
                    dweight_rmem[j] = dy_rmem[i + j] * x_rmem[i + j];
                    dy_rmem[i + j] *= weight_rmem[j];
                    sum.x += dy_rmem[i + j];
                    sum.y += dy_rmem[i + j] * x_rmem[i + j];
                }
                accumulate<Pack>(dweight_smem + col, dweight_rmem);
            }
        }
        // END TODO(2)
        sum = block_reduce_sum(sum, partial_smem);
        // TODO(3): registers -> global: store dx with accesses of type Pack, nothing past the row. (~9 lines)
        const float g_mean = sum.x * share;
        const float gx_mean = sum.y * share;
#pragma unroll
        for (int i = 0; i < HELD; i += VEC<Pack>) {
            const int col = i * threads + tid * VEC<Pack>;
#pragma unroll
            for (int j = i; j < i + VEC<Pack>; ++j) dy_rmem[j] = row_rstd * (dy_rmem[j] - g_mean - x_rmem[j] * gx_mean);
            if (col < cols) store<Pack>(dx + row_begin + col, dy_rmem + i);
        }
        // END TODO(3)
    }
    // TODO(4): shared -> global: store this block's column sums in its row of dweight_gmem and dbias_gmem. (~7 lines)
    for (int col = tid * VEC<Pack>; col < cols; col += threads * VEC<Pack>) {
        alignas(Pack) float sums_rmem[VEC<Pack>];
        load<Pack>(sums_rmem, dweight_smem + col);
        store<Pack>(dweight_gmem + blockIdx.x * cols + col, sums_rmem);
        load<Pack>(sums_rmem, dbias_smem + col);
        store<Pack>(dbias_gmem + blockIdx.x * cols + col, sums_rmem);
    }
    // END TODO(4)
}

// A block handles 32 columns, of dweight if blockIdx.y is 0, of dbias if it is 1: one column per lane, and a share of
// the blocks' sums per warp. The order of the additions is fixed.
__global__ void __launch_bounds__(COLUMN_WARPS* WARP_SIZE)
    column_sums_kernel(float* __restrict__ dweight, float* __restrict__ dbias, int blocks, int cols) {
    __shared__ float sums_smem[COLUMN_WARPS][WARP_SIZE];
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int warps = blockDim.x / WARP_SIZE;
    const int col = blockIdx.x * WARP_SIZE + lane_id;
    const float* from = blockIdx.y == 0 ? dweight_gmem : dbias_gmem;
    float* to = blockIdx.y == 0 ? dweight : dbias;
    float sum = 0.0f;
    // TODO(5): Add the rows of from: each warp adds a share of them, then one warp adds the sums of all warps. All
    //   warps handle the same columns. Nothing past the row. (~11 lines)
    // Unrolling keeps eight loads in flight before the first value is needed.
    if (col < cols) {
#pragma unroll 8
        for (int block = warp_id; block < blocks; block += warps) sum += from[block * cols + col];
    }
    sums_smem[warp_id][lane_id] = sum;
    // The first warp reads what all the other warps wrote.
    __syncthreads();
    if (warp_id == 0 && col < cols) {
        sum = 0.0f;
        for (int warp = 0; warp < warps; ++warp) sum += sums_smem[warp][lane_id];
        to[col] = sum;
    }
    // END TODO(5)
}

KATA_EXPORT void layer_norm_backward_recompute_f32(
    const float* y, const float* dy, const float* weight, const float* bias, const float* rstd, float* dx,
    float* dweight, float* dbias, int rows, int cols, cudaStream_t stream) {
    // A block has just enough warps to hold a row. The space for the column sums limits the number of blocks.
    const int warps = (cols - 1) / (WARP_SIZE * HELD) + 1;
    const int blocks = std::min({(rows - 1) / MIN_ROWS + 1, MAX_BLOCKS, MAX_PARTIALS / cols});
    const int smem_bytes = 2 * cols * static_cast<int>(sizeof(float));
    // All rows start at a multiple of 16 bytes only if 4 divides cols.
    const auto kernel = cols % 4 == 0 ? layer_norm_backward_recompute_f32_kernel<float4>
                                      : layer_norm_backward_recompute_f32_kernel<float>;
    // A launch with more than 48 KB of dynamic shared memory needs this attribute of the kernel.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    kernel<<<blocks, warps * WARP_SIZE, smem_bytes, stream>>>(y, dy, weight, bias, rstd, dx, rows, cols);
    const dim3 grid((cols - 1) / WARP_SIZE + 1, 2);
    column_sums_kernel<<<grid, std::min(blocks, COLUMN_WARPS) * WARP_SIZE, 0, stream>>>(dweight, dbias, blocks, cols);
}
