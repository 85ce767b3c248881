// Wrong: what lies past the row counts as 0, and so as -mean in the variance
// Kata: layer_norm_f32x4
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 512;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int HELD = 32;  // elements of the row that a thread keeps in registers
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial sums of all warps");
static_assert(THREADS * HELD >= 16384, "the largest block holds the longest row");

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
    // A slow warp may still read the partial sums of the call before.
    __syncthreads();
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : 0.0f);
    return sum;
}

// Pack is what one access moves. Its VEC elements divide cols: a vector lies in the row as a whole or not at all, and
// every row starts at a multiple of its size.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(float);

// global -> registers: from[0..VEC-1]
template <typename Pack>
__device__ __forceinline__ void load(float* to_rmem, const float* from) {
    *reinterpret_cast<Pack*>(to_rmem) = *reinterpret_cast<const Pack*>(from);
}

// registers -> global: to[0..VEC-1]
template <typename Pack>
__device__ __forceinline__ void store(float* to, const float* from_rmem) {
    *reinterpret_cast<Pack*>(to) = *reinterpret_cast<const Pack*>(from_rmem);
}

// Two blocks per SM: 64 registers a thread at most, and one block loads while the other computes.
template <typename Pack>
__global__ void __launch_bounds__(THREADS, 2) layer_norm_f32x4_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ y, int cols, float eps) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    alignas(Pack) float x_rmem[HELD] = {};  // what the row does not reach stays 0
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
        if (col < cols) load<Pack>(x_rmem + i, x_row + col);
    }
    float mean = 0.0f;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; ++i) sum += x_rmem[i];
    mean = block_reduce_sum(sum, partial_smem) / cols;
    float scale = 0.0f;
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        x_rmem[i] = x_rmem[i] - mean;
        squares += x_rmem[i] * x_rmem[i];
    }
    scale = rsqrtf(block_reduce_sum(squares, partial_smem) / cols + eps);
#pragma unroll
    for (int i = 0; i < HELD; i += VEC<Pack>) {
        const int col = i * threads + tid * VEC<Pack>;
        if (col < cols) {
            alignas(Pack) float weight_rmem[VEC<Pack>], bias_rmem[VEC<Pack>];
            load<Pack>(weight_rmem, weight + col);
            load<Pack>(bias_rmem, bias + col);
#pragma unroll
            for (int j = 0; j < VEC<Pack>; ++j) x_rmem[i + j] = x_rmem[i + j] * scale * weight_rmem[j] + bias_rmem[j];
            store<Pack>(y_row + col, x_rmem + i);
        }
    }
}

KATA_EXPORT void layer_norm_f32x4(
    const float* x, const float* weight, const float* bias, float* y, int rows, int cols, float eps,
    cudaStream_t stream) {
    // One block per row, of just enough warps to hold the row.
    const int warps = (cols - 1) / (WARP_SIZE * HELD) + 1;
    // Only where 4 divides cols do all rows start at a multiple of 16 bytes.
    const auto kernel = cols % 4 == 0 ? layer_norm_f32x4_kernel<float4> : layer_norm_f32x4_kernel<float>;
    kernel<<<rows, warps * WARP_SIZE, 0, stream>>>(x, weight, bias, y, cols, eps);
}
