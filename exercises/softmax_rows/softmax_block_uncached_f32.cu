// softmax_block_uncached_f32: y[row, col] = exp(x[row, col] - max) / sum of exp(x - max) over a row of any length
//
// Shapes     x, y: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1
// Technique  shared memory holds the columns that fit; the others are read twice, the second time in reverse order
// New        over softmax_block_smem_f32: a row may be longer than shared memory; the columns read last are read again
//            first, while L2 still has them, and L2 evicts first what is not read again
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

constexpr int THREADS = 1024;  // of the largest block: a short row gets a smaller one
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int SHARE = 32;  // elements of a short row for each thread
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial results of all warps");

// The maximum of some elements of a row, and their sum of exp(element - maximum).
struct Partial {
    float max;
    float sum;
};

// The pair of no elements. The lowest float stands in for -inf, because -inf - -inf is nan, not 0.
__device__ __forceinline__ Partial nothing() {
    return {-FLT_MAX, 0.0f};
}

// The pair of the elements of both. The pair of a single element x is {x, 1}.
__device__ __forceinline__ Partial merge(Partial a, Partial b) {
    Partial merged = nothing();
    merged.max = fmaxf(a.max, b.max);
    merged.sum = a.sum * __expf(a.max - merged.max) + b.sum * __expf(b.max - merged.max);
    return merged;
}

// The lanes' partial results merged, in every lane. All 32 lanes must call it together.
__device__ __forceinline__ Partial warp_reduce(Partial value) {
#pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) {
        const float max = __shfl_xor_sync(FULL_MASK, value.max, offset);
        const float sum = __shfl_xor_sync(FULL_MASK, value.sum, offset);
        value = merge(value, {max, sum});
    }
    return value;
}

// The threads' partial results merged, in every thread. All threads must call it together, and once in a kernel.
__device__ __forceinline__ Partial block_reduce(Partial value, Partial* partial_smem) {
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int lane_id = threadIdx.x % WARP_SIZE;
    value = warp_reduce(value);
    if (lane_id == 0) partial_smem[warp_id] = value;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    value = warp_reduce(lane_id < blockDim.x / WARP_SIZE ? partial_smem[lane_id] : nothing());
    return value;
}

// Pack is what one access moves. Its VEC elements divide cols: a vector lies in the row as a whole or not at all, and
// every row starts at a multiple of its size.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(float);

// Elements that a thread loads before it uses the first. Single elements take more registers for their addresses.
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

// Shared memory has room for the first held columns. held is a multiple of VEC.
template <typename Pack>
__global__ void __launch_bounds__(THREADS)
    softmax_block_uncached_f32_kernel(const float* __restrict__ x, float* __restrict__ y, int cols, int held) {
    extern __shared__ float4 dynamic_smem[];
    __shared__ Partial partial_smem[WARPS];
    float* row_smem = reinterpret_cast<float*>(dynamic_smem);  // [held]
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const float* x_row = x + static_cast<int64_t>(blockIdx.x) * cols;
    float* y_row = y + static_cast<int64_t>(blockIdx.x) * cols;
    // The columns below once are read once and must not evict others from L2. They are those in shared memory, if there
    // are others.
    const int once = held < cols ? held : 0;
    Partial row = nothing();
    for (int64_t begin = 0; begin < cols; begin += BATCH<Pack> * threads) {
        alignas(Pack) float x_rmem[BATCH<Pack>];
        // TODO(1): global -> registers: BATCH elements per thread from column begin on, VEC per access of type Pack,
        //   neighbouring threads on neighbouring vectors. Columns below once are read for the last time. Places past
        //   the row must contribute nothing. (~10 lines)
        // END TODO(1)
        // TODO(2): registers -> shared, as far as there is room. Merge the batch's maximum and sum into the row's.
        //   (~11 lines)
        // END TODO(2)
    }
    row = block_reduce(row, partial_smem);
    const float scale = 1.0f / row.sum;
    // TODO(3): Write the columns from held on: load them again, BATCH elements per thread as before, but with the last
    //   batch first. Touch nothing below held and nothing past the row. (~16 lines)
    // END TODO(3)
    // No barrier for row_smem: no thread reads what another wrote.
    for (int col = tid * VEC<Pack>; col < held; col += threads * VEC<Pack>) {
        alignas(Pack) float y_rmem[VEC<Pack>];
        load<Pack>(y_rmem, row_smem + col);
#pragma unroll
        for (float& value : y_rmem) value = __expf(value - row.max) * scale;
        stream<Pack>(y_row + col, y_rmem);
    }
}

KATA_EXPORT void softmax_block_uncached_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    // One block per row, of as many warps as give each thread its share, WARPS at most.
    const int warps = std::min((cols - 1) / (WARP_SIZE * SHARE) + 1, WARPS);
    // All rows start at a multiple of 16 bytes only where cols is a multiple of 4.
    const auto kernel =
        cols % 4 == 0 ? softmax_block_uncached_f32_kernel<float4> : softmax_block_uncached_f32_kernel<float>;
    int held = cols;
    // TODO(4): Ask the device for the most shared memory that a block may have. partial_smem takes a part of it. The
    //   row gets as much of the rest as it needs. (~5 lines)
    // END TODO(4)
    const int smem_bytes = held * static_cast<int>(sizeof(float));
    // Without this attribute a launch gets at most 48 KB of dynamic shared memory.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    kernel<<<rows, warps * WARP_SIZE, smem_bytes, stream>>>(x, y, cols, held);
}
