// rope_f32: rotary embedding, y = x with every pair (2i, 2i+1) of a row rotated by position * theta^(-2i / hidden)
//
// Shapes     x, y: [seq_len, hidden] f32, position: [seq_len] i32 in 0..2^17, row-major, contiguous, 16-byte aligned
//            bases, any seq_len >= 0, any even hidden >= 2
// Technique  a thread owns one pair of columns in ROWS rows: one frequency, ROWS rotations; the angle is a sum of two
//            floats, in turns, until its whole turns are dropped
// New        over elementwise_f32: a function of large arguments, for which float has too few digits
// Bound      memory bandwidth, as long as an angle, its sine and its cosine cost few enough instructions
#include "kata.cuh"
#include <cmath>
#include <cstdint>

constexpr int THREADS = 256;
constexpr int ROWS = 8;  // rows per thread: one frequency, computed in double precision, serves all of them
constexpr double TURNS_PER_RADIAN = 0.15915494309189533577;  // 1 / (2 pi)

// An angular frequency in turns per position, as a sum of two floats: 48 bits.
struct Frequency {
    float hi, lo;
};

// The frequency 2^(pair * log2_step) radians per position.
__device__ __forceinline__ Frequency frequency(int pair, double log2_step) {
    // TODO(1): Convert it to turns per position, and split it into two floats: lo holds what hi cannot. (~3 lines)
    const double turns = exp2(pair * log2_step) * TURNS_PER_RADIAN;
    const float hi = static_cast<float>(turns);
    return {hi, static_cast<float>(turns - hi)};
    // END TODO(1)
}

// The pair x rotated by position * freq turns. The position is an integer that float represents exactly.
__device__ __forceinline__ float2 rotate(float2 x, float position, Frequency freq) {
    // TODO(2): Find the angle in turns without its whole turns, with an error of about 2^-26 at most. position *
    //   freq.hi loses up to 2^-10 to rounding, and fma computes exactly how much. freq.lo matters, too. (~3 lines)
    // Rounded, never fused: fused with the subtraction below, it would count the lost part twice.
    const float product = __fmul_rn(position, freq.hi);
    const float lost = fmaf(position, freq.hi, -product);
    // The difference is exact. The small parts are added to the fraction, at most 1/2, and not to the whole product.
    const float turns = product - rintf(product) + fmaf(position, freq.lo, lost);
    // END TODO(2)
    // TODO(3): Rotate the pair by that many turns, as a complex number. (~3 lines)
    float sine, cosine;
    sincospif(2.0f * turns, &sine, &cosine);
    return make_float2(x.x * cosine - x.y * sine, x.x * sine + x.y * cosine);
    // END TODO(3)
}

__global__ void __launch_bounds__(THREADS) rope_f32_kernel(
    const float* __restrict__ x,       // [seq_len, hidden]
    const int* __restrict__ position,  // [seq_len]
    float* __restrict__ y,             // [seq_len, hidden]
    int seq_len, int hidden, double log2_step) {
    const int pairs = hidden / 2;
    const int groups = (seq_len - 1) / ROWS + 1;  // groups of ROWS rows; the last may have fewer
    // Threads go along the pairs of a row, then to the next group of rows. 64-bit: the product may exceed int.
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx >= static_cast<int64_t>(groups) * pairs) return;
    const int col = idx % pairs * 2;
    const int64_t first_row = idx / pairs * ROWS;
    const Frequency freq = frequency(col / 2, log2_step);
    // TODO(4): Rotate this thread's pair in each of its rows that exists, by 64-bit accesses. hidden is even, so every
    //   pair begins at a multiple of 8 bytes. (~8 lines)
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int64_t row = first_row + r;
        if (row < seq_len) {
            const float* from = x + row * hidden + col;
            float* to = y + row * hidden + col;
            *reinterpret_cast<float2*>(to) = rotate(*reinterpret_cast<const float2*>(from), position[row], freq);
        }
    }
    // END TODO(4)
}

KATA_EXPORT void rope_f32(
    const float* x, const int* position, float* y, int seq_len, int hidden, float theta, cudaStream_t stream) {
    if (seq_len == 0) return;  // a grid of no blocks is an invalid launch
    // theta^(-2i / hidden) = 2^(i * log2_step)
    const double log2_step = -2.0 / hidden * std::log2(static_cast<double>(theta));
    const int64_t threads = static_cast<int64_t>((seq_len - 1) / ROWS + 1) * (hidden / 2);
    const int blocks = static_cast<int>((threads - 1) / THREADS + 1);
    rope_f32_kernel<<<blocks, THREADS, 0, stream>>>(x, position, y, seq_len, hidden, log2_step);
}
