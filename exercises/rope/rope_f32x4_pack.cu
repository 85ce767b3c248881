// rope_f32x4_pack: rotary embedding, two pairs of a row per thread in one 128-bit access
//
// Shapes     x, y: [seq_len, hidden] f32, position: [seq_len] i32 in 0..2^17, row-major, contiguous, 16-byte aligned
//            bases, any seq_len >= 0, any even hidden >= 2
// Technique  a thread owns four columns in ROWS rows, and loads from all of them before it rotates; 128-bit accesses
//            where hidden is a multiple of 4 (otherwise rows are not 16-byte aligned, and pairs are moved one by one)
// New        over rope_f32: half the memory instructions, ROWS independent loads in flight per thread, and stores
//            marked as streaming
// Bound      memory bandwidth
#include "kata.cuh"
#include <cmath>
#include <cstdint>

constexpr int THREADS = 256;
constexpr int VEC = 4;   // columns per thread: two pairs, 16 bytes
constexpr int ROWS = 8;  // rows per thread: one frequency, computed in double precision, serves all of them
constexpr double TURNS_PER_RADIAN = 0.15915494309189533577;  // 1 / (2 pi)

// An angular frequency in turns per position, as a sum of two floats: 48 bits.
struct Frequency {
    float hi, lo;
};

// The frequency 2^(pair * log2_step) radians per position.
__device__ __forceinline__ Frequency frequency(int pair, double log2_step) {
    const double turns = exp2(pair * log2_step) * TURNS_PER_RADIAN;
    const float hi = static_cast<float>(turns);
    return {hi, static_cast<float>(turns - hi)};
}

// The pair x rotated by position * freq turns. The position is an integer that float represents exactly.
__device__ __forceinline__ float2 rotate(float2 x, float position, Frequency freq) {
    // Rounded, never fused: fused with the subtraction below, it would count the lost part twice.
    const float product = __fmul_rn(position, freq.hi);
    const float lost = fmaf(position, freq.hi, -product);
    // The difference is exact. The small parts are added to the fraction, at most 1/2, and not to the whole product.
    const float turns = product - rintf(product) + fmaf(position, freq.lo, lost);
    float sine, cosine;
    sincospif(2.0f * turns, &sine, &cosine);
    return make_float2(x.x * cosine - x.y * sine, x.x * sine + x.y * cosine);
}

__global__ void __launch_bounds__(THREADS) rope_f32x4_pack_kernel(
    const float* __restrict__ x,       // [seq_len, hidden]
    const int* __restrict__ position,  // [seq_len]
    float* __restrict__ y,             // [seq_len, hidden]
    int seq_len, int hidden, double log2_step) {
    const int vecs = (hidden - 1) / VEC + 1;      // threads per row; the last may own a single pair
    const int groups = (seq_len - 1) / ROWS + 1;  // groups of ROWS rows; the last may have fewer
    // Threads go along a row, then to the next group of rows. 64-bit: the product may exceed int.
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx >= static_cast<int64_t>(groups) * vecs) return;
    const int col = idx % vecs * VEC;
    const int64_t first_row = idx / vecs * ROWS;
    const Frequency freq0 = frequency(col / 2, log2_step);
    const Frequency freq1 = frequency(col / 2 + 1, log2_step);
    const bool whole = hidden % VEC == 0;  // every row begins at a multiple of 16 bytes, and holds whole vectors
    const bool second = col + 2 < hidden;  // this thread owns a second pair
    float4 x_rmem[ROWS];
    float position_rmem[ROWS];
    // TODO(1): global -> registers: four columns of every row that exists, and its position. No load may wait for
    //   another load or for a rotation. (~10 lines)
    // END TODO(1)
    // TODO(2): registers -> global: rotate both pairs of every row that exists, and store them with the width of the
    //   loads. Store whole vectors as streaming, because this kernel does not read y. (~12 lines)
    // END TODO(2)
}

KATA_EXPORT void rope_f32x4_pack(
    const float* x, const int* position, float* y, int seq_len, int hidden, float theta, cudaStream_t stream) {
    if (seq_len == 0) return;  // a grid of no blocks is an invalid launch
    // theta^(-2i / hidden) = 2^(i * log2_step)
    const double log2_step = -2.0 / hidden * std::log2(static_cast<double>(theta));
    const int64_t threads = static_cast<int64_t>((seq_len - 1) / ROWS + 1) * ((hidden - 1) / VEC + 1);
    const int blocks = static_cast<int>((threads - 1) / THREADS + 1);
    rope_f32x4_pack_kernel<<<blocks, THREADS, 0, stream>>>(x, position, y, seq_len, hidden, log2_step);
}
