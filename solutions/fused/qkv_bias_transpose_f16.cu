// qkv_bias_transpose_f16: q, k, v[b, head, s, :] = qkv[b, s, 0, 1, 2, head, :] + bias[0, 1, 2, head, :]
//
// Shapes     qkv: [batch, seq, 3, heads, dim], bias: [3, heads, dim], q, k, v: [batch, heads, seq, dim] f16,
//            contiguous, 16-byte aligned bases, any batch, seq >= 0, heads, dim >= 1
// Technique  a thread owns eight columns of four tokens; a head's dim elements stay together, so no tile is transposed
// New        over add_bias_gelu_f16: one input row is stored as pieces of dim elements in three tensors
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int TOKENS = 4;  // tokens per thread, consecutive in a sequence

// Pack is the type of one access. Its VEC elements divide dim: a vector belongs to one head.
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
    // TODO(1): Find where token s of these columns goes: in which of the three tensors, and where in it. (~4 lines)
    const int part = col / hidden;
    const int head = col % hidden / dim;
    to = part == 0 ? q : part == 1 ? k : v;
    to += ((static_cast<int64_t>(b) * heads + head) * seq + s) * dim + col % dim;
    // END TODO(1)
    Pack bias_rmem = {};
    Pack x_rmem[TOKENS] = {};
    // TODO(2): global -> registers: one access of type Pack to bias and one for each token that the sequence has. How
    //   far apart are two tokens here? (~5 lines)
    bias_rmem = *reinterpret_cast<const Pack*>(bias + col);
#pragma unroll
    for (int i = 0; i < TOKENS; ++i) {
        if (s + i < seq) x_rmem[i] = *reinterpret_cast<const Pack*>(from + static_cast<int64_t>(i) * 3 * hidden);
    }
    // END TODO(2)
    const half* addend = reinterpret_cast<const half*>(&bias_rmem);
    // TODO(3): Add, round each sum once, and store each token that the sequence has by one access of type Pack. How far
    //   apart are two tokens there? (~6 lines)
#pragma unroll
    for (int i = 0; i < TOKENS; ++i) {
        half* element = reinterpret_cast<half*>(&x_rmem[i]);
#pragma unroll
        for (int j = 0; j < VEC<Pack>; ++j) element[j] = __hadd(element[j], addend[j]);
        if (s + i < seq) *reinterpret_cast<Pack*>(to + static_cast<int64_t>(i) * dim) = x_rmem[i];
    }
    // END TODO(3)
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
    // Every head of every token starts at a multiple of 16 bytes only if 8 divides dim.
    if (dim % 8 == 0) {
        launch<uint4>(qkv, bias, q, k, v, batch, seq, heads, dim, stream);
    } else {
        launch<half>(qkv, bias, q, k, v, batch, seq, heads, dim, stream);
    }
}
