// Wrong: the product is fused with the subtraction of its whole turns, which then has what fma adds once more
// Kata: rope_f32
// Sim: wrong answer
// Gpu: wrong answer
#include "kata.cuh"
#include <cmath>
#include <cstdint>

constexpr int THREADS = 256;
constexpr int ROWS = 8;  // rows per thread: a frequency costs double precision, once for all of them
constexpr double TURNS_PER_RADIAN = 0.15915494309189533577;  // 1 / (2 pi)

// An angular frequency in turns per position, as a sum: 48 bits.
struct Frequency {
    float hi, lo;
};

// The frequency 2^(pair * log2_step) radians per position.
__device__ __forceinline__ Frequency frequency(int pair, double log2_step) {
    const double turns = exp2(pair * log2_step) * TURNS_PER_RADIAN;
    const float hi = static_cast<float>(turns);
    return {hi, static_cast<float>(turns - hi)};
}

// The pair x rotated by position * freq turns. The position is a whole number that float holds.
__device__ __forceinline__ float2 rotate(float2 x, float position, Frequency freq) {
    const float product = __fmul_rn(position, freq.hi);
    const float lost = fmaf(position, freq.hi, -product);
    const float turns = fmaf(position, freq.hi, -rintf(product)) + fmaf(position, freq.lo, lost);
    float sine, cosine;
    sincospif(2.0f * turns, &sine, &cosine);
    return make_float2(x.x * cosine - x.y * sine, x.x * sine + x.y * cosine);
}

__global__ void __launch_bounds__(THREADS) rope_f32_kernel(
    const float* __restrict__ x,       // [seq_len, hidden]
    const int* __restrict__ position,  // [seq_len]
    float* __restrict__ y,             // [seq_len, hidden]
    int seq_len, int hidden, double log2_step) {
    const int pairs = hidden / 2;
    const int groups = (seq_len - 1) / ROWS + 1;  // of ROWS rows; the last may have fewer
    // Threads go along the pairs of a row, then to the next group of rows. 64-bit: the product need not fit int.
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx >= static_cast<int64_t>(groups) * pairs) return;
    const int col = idx % pairs * 2;
    const int64_t first_row = idx / pairs * ROWS;
    const Frequency freq = frequency(col / 2, log2_step);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int64_t row = first_row + r;
        if (row < seq_len) {
            const float* from = x + row * hidden + col;
            float* to = y + row * hidden + col;
            *reinterpret_cast<float2*>(to) = rotate(*reinterpret_cast<const float2*>(from), position[row], freq);
        }
    }
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
