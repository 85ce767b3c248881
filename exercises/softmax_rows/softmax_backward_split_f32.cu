// softmax_backward_split_f32: dx[row, col] = y[row, col] * (dy[row, col] - sum of y * dy over the row)
//
// Shapes     y, dy, dx: [rows, cols] f32, row-major, contiguous, 16-byte aligned bases, any rows, cols >= 1
// Technique  the blocks that share a row hold all of it in their shared memory, and exchange their sums
// New        over softmax_backward_f32: several SMs read a row longer than one SM's shared memory once; while a block
//            waits for the others' sums, its loads of the next row are in flight
// Bound      memory bandwidth
#include "kata.cuh"
#include <algorithm>
#include <cstdint>

constexpr int THREADS = 512;      // of the largest block: a short row gets a smaller one
constexpr int BLOCKS_PER_SM = 2;  // of the largest: one loads while the other waits
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int SHARE = 16;  // columns of a short row for each thread
constexpr int BATCH = 8;   // columns that a thread asks for before it needs the first
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp adds the partial sums of all warps");

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

// A block's message to the other blocks of its row: the row's number among those the block has worked on, counted from
// 1, and its sum. 8 bytes, written and read by one access, so it is never half old and half new.
using Message = unsigned long long;

__device__ __forceinline__ Message pack_message(unsigned round, float sum) {
    return static_cast<Message>(round) << 32 | __float_as_uint(sum);
}

// Waits for the message of this round, and returns its sum.
__device__ __forceinline__ float wait_for_sum(const volatile Message* message, unsigned round) {
    Message seen = 0;
    // TODO(1): Read again and again until the message is this round's. (~3 lines)
    // END TODO(1)
    return __uint_as_float(static_cast<unsigned>(seen));
}

// Pack is what one access moves. Its VEC elements divide cols and every block's share of them: a vector lies in a share
// as a whole or not at all, and every share starts at a multiple of its size.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(float);

// global or shared -> registers: from[0..VEC-1]
template <typename Pack>
__device__ __forceinline__ void load(float* to_rmem, const float* from) {
    *reinterpret_cast<Pack*>(to_rmem) = *reinterpret_cast<const Pack*>(from);
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

// global -> registers: BATCH columns of y and of dy per thread, from column begin of a share of cols columns; 0 past
// it.
template <typename Pack>
__device__ __forceinline__ void load_batch(
    float* y_rmem, float* dy_rmem, const float* y_share, const float* dy_share, int begin, int cols) {
#pragma unroll
    for (int i = 0; i < BATCH; i += VEC<Pack>) {
        const int col = begin + i * blockDim.x + threadIdx.x * VEC<Pack>;
#pragma unroll
        for (int j = i; j < i + VEC<Pack>; ++j) y_rmem[j] = dy_rmem[j] = 0.0f;
        if (col < cols) {
            load<Pack>(y_rmem + i, y_share + col);
            load<Pack>(dy_rmem + i, dy_share + col);
        }
    }
}

// Each row belongs to blocks_per_row neighbouring blocks. Each of them has a share of the columns, and its shared
// memory has room for held of them, of both tensors. Both numbers are multiples of VEC. All blocks must be resident at
// once.
template <typename Pack>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) softmax_backward_split_f32_kernel(
    const float* __restrict__ y, const float* __restrict__ dy, float* __restrict__ dx,
    Message* messages,  // [2][gridDim.x], 0
    int rows, int cols, int blocks_per_row, int share, int held) {
    extern __shared__ float4 dynamic_smem[];
    __shared__ float partial_smem[WARPS];
    float* y_smem = reinterpret_cast<float*>(dynamic_smem);  // [held]
    float* dy_smem = y_smem + held;                          // [held]
    const int tid = threadIdx.x;
    const int threads = blockDim.x;
    const int rank = blockIdx.x % blocks_per_row;  // of this block among those of its row
    const int64_t off = static_cast<int64_t>(rank) * share;
    const int mine = static_cast<int>(max(min(cols - off, static_cast<int64_t>(share)), int64_t{0}));
    const int step = gridDim.x / blocks_per_row;
    alignas(Pack) float y_rmem[BATCH], dy_rmem[BATCH];
    const int first = blockIdx.x / blocks_per_row;
    load_batch<Pack>(y_rmem, dy_rmem, y + first * int64_t{cols} + off, dy + first * int64_t{cols} + off, 0, mine);
    unsigned round = 0;
    for (int64_t row = first; row < rows; row += step) {
        const float* y_share = y + row * cols + off;
        const float* dy_share = dy + row * cols + off;
        float* dx_share = dx + row * cols + off;
        ++round;
        float sum = 0.0f;
        for (int begin = 0; begin < mine; begin += BATCH * threads) {
            // The first batch is in flight since the row before.
            if (begin > 0) load_batch<Pack>(y_rmem, dy_rmem, y_share, dy_share, begin, mine);
            // TODO(2): registers -> shared, as far as there is room. Add the products to the sum. (~10 lines)
            // END TODO(2)
        }
        sum = block_reduce_sum(sum, partial_smem);
        // TODO(3): Send this block's sum to the other blocks of the row. A block may be one round ahead of another,
        //   which may still wait for the messages of the round before: do not overwrite these. The store may meet
        //   another block's read of the same message, so it must be an atomic. (~3 lines)
        // END TODO(3)
        // These loads take as long as the messages do.
        if (row + step < rows)
            load_batch<Pack>(y_rmem, dy_rmem, y_share + int64_t{step} * cols, dy_share + int64_t{step} * cols, 0, mine);
        // TODO(4): The sum over the row, in every thread. One thread waits for each of the row's messages. (~4 lines)
        // END TODO(4)
        // No barrier for y_smem and dy_smem: no thread reads what another wrote.
        for (int col = tid * VEC<Pack>; col < mine; col += threads * VEC<Pack>) {
            alignas(Pack) float y_last[VEC<Pack>], dy_last[VEC<Pack>];
            load<Pack>(y_last, col < held ? y_smem + col : y_share + col);
            load<Pack>(dy_last, col < held ? dy_smem + col : dy_share + col);
#pragma unroll
            for (int j = 0; j < VEC<Pack>; ++j) dy_last[j] = y_last[j] * (dy_last[j] - sum);
            stream<Pack>(dx_share + col, dy_last);
        }
    }
}

KATA_EXPORT void softmax_backward_split_f32(
    const float* y, const float* dy, float* dx, int rows, int cols, cudaStream_t stream) {
    // All rows start at a multiple of 16 bytes only where cols is a multiple of 4.
    const auto kernel =
        cols % 4 == 0 ? softmax_backward_split_f32_kernel<float4> : softmax_backward_split_f32_kernel<float>;
    int device = 0, sms = 0, sm_bytes = 0, reserved_bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&sm_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    cudaDeviceGetAttribute(&reserved_bytes, cudaDevAttrReservedSharedMemoryPerBlock, device);
    // The system and partial_smem take their parts of a block's share of the SM's shared memory. Both tensors get the
    // rest.
    const int block_bytes = sm_bytes / BLOCKS_PER_SM - reserved_bytes - WARPS * static_cast<int>(sizeof(float));
    const int room = block_bytes / static_cast<int>(2 * sizeof(float4)) * 4;
    // As many blocks as hold the row, but at most as many as there are. In that case a share is longer than held.
    int blocks_per_row = std::min((cols - 1) / room + 1, sms * BLOCKS_PER_SM);
    int share = ((cols - 1) / blocks_per_row / 4 + 1) * 4;
    int held = std::min(share, room);
    const int threads = std::min((share - 1) / (WARP_SIZE * SHARE) + 1, WARPS) * WARP_SIZE;
    const int smem_bytes = 2 * held * static_cast<int>(sizeof(float));
    // Without this attribute a launch gets at most 48 KB of dynamic shared memory.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    int blocks = 0;
    // TODO(5): Blocks wait for one another, so all must be resident at once. Work on as many rows at a time as fit on
    //   the device, but at most as many as there are. (~4 lines)
    // END TODO(5)
    Message* messages = nullptr;
    cudaMallocAsync(&messages, 2 * blocks * sizeof(Message), stream);
    cudaMemsetAsync(messages, 0, 2 * blocks * sizeof(Message), stream);
    // <<<...>>> does not promise that all blocks are resident together. This launch does, or it fails.
    void* arguments[] = {&y, &dy, &dx, &messages, &rows, &cols, &blocks_per_row, &share, &held};
    cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), blocks, threads, arguments, smem_bytes, stream);
    cudaFreeAsync(messages, stream);
}
