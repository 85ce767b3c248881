// Wrong: the last four tokens of a sequence are loaded and stored although it has fewer
// Kata: qkv_bias_transpose_f16
// Sim: out of bounds | race | wrong answer: they belong to the next head, or to nobody
// Gpu: out of bounds | race | wrong answer: they belong to the next head, or to nobody
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int TOKENS = 4;  // tokens of a thread, one after the other in a sequence

// Pack is what one access moves. Its VEC elements divide dim: a vector lies in one head as a whole.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(half);

template <typename Pack>
__global__ void __launch_bounds__(THREADS) qkv_bias_transpose_f16_kernel(
    const half* __restrict__ qkv, const half* __restrict__ bias, half* __restrict__ q, half* __restrict__ k,
    half* __restrict__ v, int batch, int seq, int heads, int dim) {
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    const int hidden = heads * dim;
    const int vectors = 3 * hidden / VEC<Pack>;  // of a token
    const int groups = (seq - 1) / TOKENS + 1;   // of tokens, in a sequence
    const int64_t group = idx / vectors;         // this thread owns, of the group's tokens,
    const int col = idx % vectors * VEC<Pack>;   // columns col..col+VEC-1 of 3 * hidden
    const int b = static_cast<int>(group / groups);
    const int s = static_cast<int>(group % groups) * TOKENS;  // and these are tokens s..s+TOKENS-1 of sequence b
    if (b >= batch) return;
    const half* from = qkv + (static_cast<int64_t>(b) * seq + s) * 3 * hidden + col;
    half* to = nullptr;
    const int part = col / hidden;
    const int head = col % hidden / dim;
    to = part == 0 ? q : part == 1 ? k : v;
    to += ((static_cast<int64_t>(b) * heads + head) * seq + s) * dim + col % dim;
    Pack bias_rmem = {};
    Pack x_rmem[TOKENS] = {};
    bias_rmem = *reinterpret_cast<const Pack*>(bias + col);
#pragma unroll
    for (int i = 0; i < TOKENS; ++i) {
        x_rmem[i] = *reinterpret_cast<const Pack*>(from + static_cast<int64_t>(i) * 3 * hidden);
    }
    const half* addend = reinterpret_cast<const half*>(&bias_rmem);
#pragma unroll
    for (int i = 0; i < TOKENS; ++i) {
        half* element = reinterpret_cast<half*>(&x_rmem[i]);
#pragma unroll
        for (int j = 0; j < VEC<Pack>; ++j) element[j] = __hadd(element[j], addend[j]);
        *reinterpret_cast<Pack*>(to + static_cast<int64_t>(i) * dim) = x_rmem[i];
    }
}

template <typename Pack>
void launch(
    const half* qkv, const half* bias, half* q, half* k, half* v, int batch, int seq, int heads, int dim,
    cudaStream_t stream) {
    const int64_t groups = static_cast<int64_t>(batch) * ((seq - 1) / TOKENS + 1);
    const int64_t threads = groups * (3 * heads * dim / VEC<Pack>);
    const auto blocks = static_cast<unsigned>((threads - 1) / THREADS + 1);
    qkv_bias_transpose_f16_kernel<Pack><<<blocks, THREADS, 0, stream>>>(qkv, bias, q, k, v, batch, seq, heads, dim);
}

KATA_EXPORT void qkv_bias_transpose_f16(
    const half* qkv, const half* bias, half* q, half* k, half* v, int batch, int seq, int heads, int dim,
    cudaStream_t stream) {
    if (batch == 0 || seq == 0) return;  // a grid of no blocks is an invalid launch
    // Only where 8 divides dim does every head of every token start at a multiple of 16 bytes.
    if (dim % 8 == 0) {
        launch<uint4>(qkv, bias, q, k, v, batch, seq, heads, dim, stream);
    } else {
        launch<half>(qkv, bias, q, k, v, batch, seq, heads, dim, stream);
    }
}
