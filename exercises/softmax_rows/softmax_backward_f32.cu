// softmax_backward_f32: dx[row, col] = y[row, col] * (dy[row, col] - sum of y * dy over the row), y a softmax of x
//
// Shapes     y, dy, dx: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1
// Technique  shared memory holds the columns of y and dy that fit; the others are read twice, the second time in
//            reverse order
// New        over softmax_block_uncached_f32: a row of two tensors, reduced to one sum
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cstdint>

constexpr int THREADS = 1024;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int SHARE = 16;  // columns of a short row for each thread
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp adds the partial sums of all warps");

// The sum over the warp's 32 lanes, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ float warp_reduce_sum(float sum) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, offset);
    return sum;
}

// The sum over the block's threads, in every thread. All threads must call it together, and only once.
__device__ __forceinline__ float block_reduce_sum(float sum, float* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    sum = warp_reduce_sum(sum);
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

// Columns that a thread loads before it uses the first. Single columns take more registers for their addresses.
template <typename Pack>
constexpr int BATCH = VEC<Pack> == 4 ? 16 : 8;

// global or shared -> registers: from[0..VEC-1]
template <typename Pack>
__device__ __forceinline__ void load(float* to_rmem, const float* from) {
    *reinterpret_cast<Pack*>(to_rmem) = *reinterpret_cast<const Pack*>(from);
}

// global -> registers: from[0..VEC-1], read for the last time: the caches evict it first
template <typename Pack>
__device__ __forceinline__ void load_last(float* to_rmem, const float* from) {
    *reinterpret_cast<Pack*>(to_rmem) = __ldcs(reinterpret_cast<const Pack*>(from));
}

// registers -> shared: to[0..VEC-1]
template <typename Pack>
__device__ __forceinline__ void store(float* to, const float* from_rmem) {
    *reinterpret_cast<Pack*>(to) = *reinterpret_cast<const Pack*>(from_rmem);
}

// registers -> global: to[0..VEC-1], never read here: the caches evict it first
template <typename Pack>
__device__ __forceinline__ void stream(float* to, const float* from_rmem) {
    __stcs(reinterpret_cast<Pack*>(to), *reinterpret_cast<const Pack*>(from_rmem));
}

// Shared memory has room for the first held columns of both tensors. held is a multiple of VEC.
template <typename Pack>
__global__ void __launch_bounds__(THREADS) softmax_backward_f32_kernel(
    const float* __restrict__ y, const float* __restrict__ dy, float* __restrict__ dx, int cols, int held) {
    extern __shared__ float4 dynamic_smem[];
    __shared__ float partial_smem[WARPS];
    float* y_smem = reinterpret_cast<float*>(dynamic_smem);  // [held]
    float* dy_smem = y_smem + held;                          // [held]
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    const float* dy_row = dy + static_cast<int64_t>(blockIdx.x) * cols;
    float* dx_row = dx + static_cast<int64_t>(blockIdx.x) * cols;
    // The columns below once are read once and must not evict others from L2. They are those in shared memory, if there
    // are others.
    const int once = held < cols ? held : 0;
    float sum = 0.0f;
    for (int64_t begin = 0; begin < cols; begin += BATCH<Pack> * threads) {
        alignas(Pack) float y_rmem[BATCH<Pack>] = {}, dy_rmem[BATCH<Pack>] = {};  // what the row does not reach stays 0
        // TODO(1): global -> registers: BATCH columns of y and of dy per thread from column begin on, VEC per access of
        //   type Pack, neighbouring threads on neighbouring vectors. Columns below once are read for the last time.
        //   Load nothing past the row. (~11 lines)
        // END TODO(1)
        // TODO(2): registers -> shared, as far as there is room. Add the products to the sum. (~10 lines)
        // END TODO(2)
    }
    sum = block_reduce_sum(sum, partial_smem);
    // TODO(3): Write the columns from held on: load them again, BATCH columns per thread as before, but with the last
    //   batch first. Touch nothing below held and nothing past the row. (~19 lines)
    // END TODO(3)
    // No barrier for y_smem and dy_smem: no thread reads what another wrote.
    for (int col = tid * VEC<Pack>; col < held; col += threads * VEC<Pack>) {
        alignas(Pack) float y_rmem[VEC<Pack>], dy_rmem[VEC<Pack>];
        load<Pack>(y_rmem, y_smem + col);
        load<Pack>(dy_rmem, dy_smem + col);
#pragma unroll
        for (int j = 0; j < VEC<Pack>; ++j) dy_rmem[j] = y_rmem[j] * (dy_rmem[j] - sum);
        stream<Pack>(dx_row + col, dy_rmem);
    }
}

KATA_EXPORT void softmax_backward_f32(
    const float* y, const float* dy, float* dx, int rows, int cols, cudaStream_t stream) {
    // One block per row, of as many warps as give each thread its share, WARPS at most.
    const int warps = std::min((cols - 1) / (WARP_SIZE * SHARE) + 1, WARPS);
    // All rows start at a multiple of 16 bytes only where cols is a multiple of 4.
    const auto kernel = cols % 4 == 0 ? softmax_backward_f32_kernel<float4> : softmax_backward_f32_kernel<float>;
    int held = cols;
    // TODO(4): Ask the device for the most shared memory that a block may have. partial_smem takes a part of it. The
    //   rows of both tensors get as much of the rest as they need. (~5 lines)
    // END TODO(4)
    const int smem_bytes = 2 * held * static_cast<int>(sizeof(float));
    // Without this attribute a launch gets at most 48 KB of dynamic shared memory.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    kernel<<<rows, warps * WARP_SIZE, smem_bytes, stream>>>(y, dy, dx, cols, held);
}
