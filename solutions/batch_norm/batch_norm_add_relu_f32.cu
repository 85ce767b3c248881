// batch_norm_add_relu_f32: y = relu((x - mean) * rstd * weight + bias + residual), with mean and rstd of each channel
//
// Shapes     x, residual, y: [N, C, octets, 8] f32, planes of 8 * octets pixels; weight, bias, mean, rstd: [C] f32;
//            mask: [N, C, octets] u8; contiguous, 16-byte aligned bases, any N, C, octets >= 1
// Technique  each block computes the statistics of a chunk in registers, and one warp per channel merges them; then one
//            pass normalises, adds, clamps, and stores one bit per element for the backward pass
// New        over layer_norm_f32x4: the sums go over one plane of every image, which is more than a block holds
// Bound      memory bandwidth: x is read twice, residual once, y is written once
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;
constexpr int WARP_SIZE = 32;
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int VEC = 4;                  // elements per access: float4 is 16 bytes
constexpr int HELD = 8;                 // vectors of a chunk that a thread keeps in registers
constexpr int CHUNK = THREADS * HELD;   // vectors of a channel that a block takes
constexpr int AHEAD = 4;                // vectors of x and of residual that a thread has in flight in the last pass
constexpr int PIECE = THREADS * AHEAD;  // vectors of a channel that a block takes there
constexpr unsigned FULL_MASK = 0xffffffff;
static_assert(THREADS % WARP_SIZE == 0, "shuffles name all 32 lanes, so every warp must be whole");
static_assert(WARPS <= WARP_SIZE, "one warp combines the partial sums of all warps");
static_assert(VEC == 4, "two neighbouring lanes own the eight elements of a byte of the mask");

// The mean of some elements of a channel, and the sum of their squared distances from it.
struct Moments {
    float mean, squares;
};

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
    // A slow warp may still read the partial sums of the previous call.
    __syncthreads();
    if (lane_id == 0) partial_smem[warp_id] = sum;
    // Every warp reads what all the other warps wrote.
    __syncthreads();
    sum = warp_reduce_sum(lane_id < WARPS ? partial_smem[lane_id] : 0.0f);
    return sum;
}

// The index among all vectors of x of vector vec of a channel. A plane has vecs vectors.
__device__ __forceinline__ int64_t place(int64_t vec, int channel, int C, int vecs) {
    int64_t at = 0;
    // TODO(1): After the last vector of a plane comes the first vector of the channel's plane in the next image, C
    //   planes further. (~1 line)
    at = (vec / vecs * C + channel) * vecs + vec % vecs;
    // END TODO(1)
    return at;
}

// The vectors of a channel's chunk: CHUNK, or the rest in the last chunk.
__device__ __forceinline__ int chunk_vecs(int chunk, int64_t channel_vecs) {
    const int64_t rest = channel_vecs - static_cast<int64_t>(chunk) * CHUNK;
    return rest < CHUNK ? static_cast<int>(rest) : CHUNK;
}

// One block per chunk. A channel's vectors are numbered through its N planes of vecs vectors.
__global__ void __launch_bounds__(THREADS) chunk_kernel(
    const float* __restrict__ x,       // [N, C, vecs, VEC]
    Moments* __restrict__ chunk_gmem,  // [C, chunks]
    int N, int C, int vecs, int chunks) {
    __shared__ float partial_smem[WARPS];
    const int tid = threadIdx.x;
    const int channel = blockIdx.x / chunks;
    const int chunk = blockIdx.x % chunks;
    const int owned = chunk_vecs(chunk, static_cast<int64_t>(N) * vecs);
    alignas(16) float x_rmem[HELD][VEC] = {};  // what the chunk does not reach stays 0
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        if (i * THREADS + tid < owned) {
            const int64_t at = place(static_cast<int64_t>(chunk) * CHUNK + i * THREADS + tid, channel, C, vecs);
            *reinterpret_cast<float4*>(x_rmem[i]) = *reinterpret_cast<const float4*>(x + at * VEC);
        }
    }
    Moments moments = {};
    // TODO(2): Compute the mean of the chunk, which every thread must know, and the sum of the squared distances from
    //   it. A register past the chunk holds no element and must not count. (~16 lines)
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
#pragma unroll
        for (int j = 0; j < VEC; ++j) sum += x_rmem[i][j];
    }
    moments.mean = block_reduce_sum(sum, partial_smem) / (owned * VEC);
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            const float distance = i * THREADS + tid < owned ? x_rmem[i][j] - moments.mean : 0.0f;
            squares += distance * distance;
        }
    }
    moments.squares = block_reduce_sum(squares, partial_smem);
    // END TODO(2)
    if (tid == 0) chunk_gmem[blockIdx.x] = moments;
}

// One warp per channel.
__global__ void __launch_bounds__(WARP_SIZE) merge_kernel(
    const Moments* __restrict__ chunk_gmem,  // [C, chunks]
    float* __restrict__ mean,                // [C]
    float* __restrict__ rstd,                // [C]
    int64_t channel_vecs, int chunks, float eps) {
    const int channel = blockIdx.x;
    const int lane_id = threadIdx.x;
    const Moments* moments = chunk_gmem + static_cast<int64_t>(channel) * chunks;
    const float count = static_cast<float>(channel_vecs * VEC);
    // TODO(3): Compute the channel's mean and 1 / sqrt(variance + eps), always in the same order. The last chunk may
    //   have fewer elements. A chunk's squared distances are from its own mean. How far is that from the channel's
    //   mean? (~15 lines)
    // The first chunk's mean is close to the channel's mean. The sum of differences is small, and so is its rounding.
    const float pivot = moments[0].mean;
    float sum = 0.0f;
    for (int chunk = lane_id; chunk < chunks; chunk += WARP_SIZE) {
        sum += chunk_vecs(chunk, channel_vecs) * VEC * (moments[chunk].mean - pivot);
    }
    const float channel_mean = pivot + warp_reduce_sum(sum) / count;
    float squares = 0.0f;
    for (int chunk = lane_id; chunk < chunks; chunk += WARP_SIZE) {
        const float distance = moments[chunk].mean - channel_mean;
        squares += moments[chunk].squares + chunk_vecs(chunk, channel_vecs) * VEC * distance * distance;
    }
    squares = warp_reduce_sum(squares);
    if (lane_id == 0) {
        mean[channel] = channel_mean;
        rstd[channel] = rsqrtf(squares / count + eps);
    }
    // END TODO(3)
}

// One block per piece, the last piece first: L2 still holds the end of what chunk_kernel read. No later access needs
// residual and y, so they are marked as streaming and do not displace x in L2.
__global__ void __launch_bounds__(THREADS) apply_kernel(
    const float* __restrict__ x, const float* __restrict__ residual, const float* __restrict__ weight,
    const float* __restrict__ bias, const float* __restrict__ mean, const float* __restrict__ rstd,
    float* __restrict__ y, uint8_t* __restrict__ mask, int N, int C, int vecs, int pieces) {
    const int block = gridDim.x - 1 - blockIdx.x;
    const int channel = block / pieces;
    const int64_t channel_vecs = static_cast<int64_t>(N) * vecs;
    const int64_t first = static_cast<int64_t>(block % pieces) * PIECE + threadIdx.x;
    const float channel_mean = mean[channel];
    const float channel_bias = bias[channel];
    const float scale = rstd[channel] * weight[channel];
    alignas(16) float x_rmem[AHEAD][VEC];
    alignas(16) float residual_rmem[AHEAD][VEC];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
        const int64_t vec = first + i * THREADS;
        if (vec < channel_vecs) {
            const int64_t at = place(vec, channel, C, vecs) * VEC;
            *reinterpret_cast<float4*>(x_rmem[i]) = *reinterpret_cast<const float4*>(x + at);
            *reinterpret_cast<float4*>(residual_rmem[i]) = __ldcs(reinterpret_cast<const float4*>(residual + at));
        }
    }
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
        const int64_t vec = first + i * THREADS;
        const int64_t at = place(vec, channel, C, vecs);
        unsigned bits = 0;  // bit j: whether element j of this vector of y is above 0
        // TODO(4): If the vector exists, compute it, store it, and set bits. A nan stays nan, and is not above 0.
        //   (~9 lines)
        if (vec < channel_vecs) {
            alignas(16) float y_rmem[VEC];
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                const float sum = (x_rmem[i][j] - channel_mean) * scale + channel_bias + residual_rmem[i][j];
                y_rmem[j] = sum < 0.0f ? 0.0f : sum;  // fmaxf would make 0 of a nan
                bits |= (sum > 0.0f ? 1u : 0u) << j;
            }
            __stcs(reinterpret_cast<float4*>(y + at * VEC), *reinterpret_cast<const float4*>(y_rmem));
        }
        // END TODO(4)
        // TODO(5): Bit j of a byte of the mask belongs to element j of its octet. Two lanes own a byte, and one stores
        //   it. All 32 lanes must execute the shuffle. (~2 lines)
        bits |= __shfl_down_sync(FULL_MASK, bits, 1) << VEC;
        if (vec < channel_vecs && vec % 2 == 0) mask[at / 2] = static_cast<uint8_t>(bits);
        // END TODO(5)
    }
}

KATA_EXPORT void batch_norm_add_relu_f32(
    const float* x, const float* residual, const float* weight, const float* bias, float* y, uint8_t* mask, float* mean,
    float* rstd, int N, int C, int octets, float eps, cudaStream_t stream) {
    const int vecs = octets * (8 / VEC);  // of a plane
    const int64_t channel_vecs = static_cast<int64_t>(N) * vecs;
    const int chunks = static_cast<int>((channel_vecs - 1) / CHUNK + 1);  // of a channel
    const int pieces = static_cast<int>((channel_vecs - 1) / PIECE + 1);
    // Until the last kernel writes y, its memory holds the chunks' moments: 8 bytes per chunk of 32 bytes or more.
    Moments* chunk_gmem = reinterpret_cast<Moments*>(y);
    chunk_kernel<<<C * chunks, THREADS, 0, stream>>>(x, chunk_gmem, N, C, vecs, chunks);
    merge_kernel<<<C, WARP_SIZE, 0, stream>>>(chunk_gmem, mean, rstd, channel_vecs, chunks, eps);
    apply_kernel<<<C * pieces, THREADS, 0, stream>>>(
        x, residual, weight, bias, mean, rstd, y, mask, N, C, vecs, pieces);
}
