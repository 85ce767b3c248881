// bias_gelu_dropout_bf16: y = gelu(x + bias) / (1 - p) and dx = dy gelu'(x + bias) / (1 - p) where an element is kept,
//                         0 where it is dropped; the mask is computed, not stored
//
// Shapes     x, dy, y, dx: [rows, cols], bias: [cols] bf16, row-major, contiguous, 16-byte aligned bases, seed: [2]
//            i64, any rows, cols >= 1, 0 <= p < 1
// Mask       element e = row * cols + col is kept if word e % 4 of Philox4x32-10 is at least p 2^32, with the counter
//            (e / 4 low, high, seed[1] low, high) and the key seed[0] low, high
// Technique  a thread owns eight columns of two rows: four loads in flight while it computes their random words
// New        over add_bias_gelu_f16: a mask that two passes need is a function of the element's index
// Bound      memory bandwidth, and close to it the instructions of Philox and gelu
#include "kata.cuh"
#include <cstdint>
#include <cuda_bf16.h>

constexpr int THREADS = 256;
constexpr int ROWS = 2;  // per thread, one below the other
constexpr int ROUNDS = 10;
constexpr int WORDS = 4;  // of 32 bits in a block of Philox

constexpr float LOG2_E = 1.4426950409f;
constexpr float SQRT_2_OVER_PI = 0.7978845608f;
constexpr float CUBIC = 0.044715f;

// 2^x, accurate to 2 ulp; 0 below 2^-126 (PTX ISA, "ex2").
__device__ inline float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// gelu and its derivative.
struct Gelu {
    float value;
    float slope;
};

// Both times scale. gelu(s) = s q with q = 1 / (1 + exp(-2u)), u = SQRT_2_OVER_PI (s + CUBIC s^3), and its derivative
// is q + s q (1 - q) 2 u'.
__device__ __forceinline__ Gelu gelu(float s, float scale) {
    const float square = s * s;
    const float exponent = -2.0f * LOG2_E * SQRT_2_OVER_PI * s * fmaf(CUBIC, square, 1.0f);
    const float q = __fdividef(1.0f, 1.0f + exp2_approx(exponent));
    const float slope_2u = fmaf(6.0f * CUBIC * SQRT_2_OVER_PI, square, 2.0f * SQRT_2_OVER_PI);
    const float value = s * (q * scale);
    return {value, fmaf(value * (1.0f - q), slope_2u, q * scale)};
}

// Counters -> blocks of Philox4x32-10: four random words each, which depend on the counter and the key alone.
template <int N>
__device__ __forceinline__ void philox(uint4 (&blocks)[N], uint2 key) {
    // TODO(1): Ten rounds of each counter c. A round has the 64-bit products hi0 lo0 = 0xD2511F53 * c.x and hi1 lo1 =
    //   0xCD9E8D57 * c.z, and makes c = (hi1 ^ c.y ^ key.x, lo1, hi0 ^ c.w ^ key.y, lo0). After each round, 0x9E3779B9
    //   is added to key.x and 0xBB67AE85 to key.y. (~11 lines)
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
#pragma unroll
        for (uint4& c : blocks) {
            const uint64_t product0 = uint64_t{0xD2511F53} * c.x;
            const uint64_t product1 = uint64_t{0xCD9E8D57} * c.z;
            const auto hi0 = static_cast<uint32_t>(product0 >> 32);
            const auto hi1 = static_cast<uint32_t>(product1 >> 32);
            c.x = hi1 ^ c.y ^ key.x;
            c.y = static_cast<uint32_t>(product1);
            c.z = hi0 ^ c.w ^ key.y;
            c.w = static_cast<uint32_t>(product0);
        }
        key.x += 0x9E3779B9;
        key.y += 0xBB67AE85;
    }
    // END TODO(1)
}

// The low and the high half of a number.
__device__ __forceinline__ uint2 halves(int64_t number) {
    return make_uint2(static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32));
}

// The word of a block that has this number.
__device__ __forceinline__ uint32_t word_of(const uint4& block, int word) {
    return word == 0 ? block.x : word == 1 ? block.y : word == 2 ? block.z : block.w;
}

// Pack is the type of one access, and VEC the number of its elements: 8 or 1.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(__nv_bfloat16);

// The elements of a pack as floats: a bf16 is the upper half of a float.
__device__ __forceinline__ void widen(float (&floats)[8], const uint4& pack) {
    const uint32_t words[4] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        floats[2 * i] = __uint_as_float(words[i] << 16);
        floats[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000);
    }
}

// The same for a single element.
__device__ __forceinline__ void widen(float (&floats)[1], const __nv_bfloat16& pack) {
    floats[0] = __bfloat162float(pack);
}

// Floats as a pack, each rounded to bf16.
__device__ __forceinline__ void narrow(uint4& pack, const float (&floats)[8]) {
    auto* pairs = reinterpret_cast<__nv_bfloat162*>(&pack);
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(floats[2 * i], floats[2 * i + 1]);
}

// The same for a single element.
__device__ __forceinline__ void narrow(__nv_bfloat16& pack, const float (&floats)[1]) {
    pack = __float2bfloat16(floats[0]);
}

// Each group of ROWS rows belongs to parts neighbouring blocks.
template <typename Pack>
__global__ void __launch_bounds__(THREADS) bias_gelu_dropout_bf16_kernel(
    const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ bias, const __nv_bfloat16* __restrict__ dy,
    const int64_t* __restrict__ seed, __nv_bfloat16* __restrict__ y, __nv_bfloat16* __restrict__ dx, int rows, int cols,
    int parts, float scale, uint32_t threshold) {
    const int64_t row = static_cast<int64_t>(blockIdx.x / parts) * ROWS;
    const int col = (blockIdx.x % parts * THREADS + threadIdx.x) * VEC<Pack>;  // this thread owns col..col+VEC-1
    if (col >= cols) return;
    Pack x_rmem[ROWS] = {};
    Pack dy_rmem[ROWS] = {};
    // global -> registers: all loads come before the first random word.
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        if (row + i < rows) {
            x_rmem[i] = *reinterpret_cast<const Pack*>(x + (row + i) * cols + col);
            dy_rmem[i] = *reinterpret_cast<const Pack*>(dy + (row + i) * cols + col);
        }
    }
    const Pack bias_rmem = *reinterpret_cast<const Pack*>(bias + col);
    const uint2 key = halves(seed[0]);
    const uint2 stream = halves(seed[1]);
    // A row's VEC elements begin at a multiple of VEC. So they have whole blocks, or a word of one.
    constexpr int BLOCKS = (VEC<Pack> - 1) / WORDS + 1;
    uint4 blocks[ROWS * BLOCKS] = {};
    // TODO(2): Fill in the counters of the blocks of all rows. They follow from the index of an element in x, and from
    //   no number of a thread. (~7 lines)
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < BLOCKS; ++j) {
            const uint2 number = halves(((row + i) * cols + col) / WORDS + j);
            blocks[i * BLOCKS + j] = make_uint4(number.x, number.y, stream.x, stream.y);
        }
    }
    // END TODO(2)
    philox(blocks, key);
    float addend[VEC<Pack>];
    widen(addend, bias_rmem);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int64_t e = (row + i) * cols + col;
        float s[VEC<Pack>], d[VEC<Pack>];
        widen(s, x_rmem[i]);
        widen(d, dy_rmem[i]);
        // TODO(3): Replace s by the elements of y and d by those of dx. A dropped element is 0 in both, even if it is a
        //   nan. x + bias is not rounded. Which word has element e + j? (~7 lines)
#pragma unroll
        for (int j = 0; j < VEC<Pack>; ++j) {
            const uint32_t word = word_of(blocks[i * BLOCKS + j / WORDS], VEC<Pack> == 1 ? e % WORDS : j % WORDS);
            const Gelu g = gelu(s[j] + addend[j], scale);
            s[j] = word >= threshold ? g.value : 0.0f;
            d[j] = word >= threshold ? d[j] * g.slope : 0.0f;
        }
        // END TODO(3)
        narrow(x_rmem[i], s);
        narrow(dy_rmem[i], d);
        if (row + i < rows) {
            *reinterpret_cast<Pack*>(y + e) = x_rmem[i];
            *reinterpret_cast<Pack*>(dx + e) = dy_rmem[i];
        }
    }
}

template <typename Pack>
void launch(
    const __nv_bfloat16* x, const __nv_bfloat16* bias, const __nv_bfloat16* dy, const int64_t* seed, __nv_bfloat16* y,
    __nv_bfloat16* dx, int rows, int cols, float p, cudaStream_t stream) {
    constexpr int PER_BLOCK = THREADS * VEC<Pack>;
    const int parts = (cols - 1) / PER_BLOCK + 1;  // blocks per group of rows
    const int groups = (rows - 1) / ROWS + 1;
    const float scale = 1.0f / (1.0f - p);
    const auto threshold = static_cast<uint32_t>(static_cast<double>(p) * 4294967296.0);  // p 2^32, exactly
    bias_gelu_dropout_bf16_kernel<Pack>
        <<<groups * parts, THREADS, 0, stream>>>(x, bias, dy, seed, y, dx, rows, cols, parts, scale, threshold);
}

KATA_EXPORT void bias_gelu_dropout_bf16(
    const __nv_bfloat16* x, const __nv_bfloat16* bias, const __nv_bfloat16* dy, const int64_t* seed, __nv_bfloat16* y,
    __nv_bfloat16* dx, int rows, int cols, float p, cudaStream_t stream) {
    // All rows start at a multiple of 16 bytes, and of two blocks of Philox, only if 8 divides cols.
    if (cols % 8 == 0) {
        launch<uint4>(x, bias, dy, seed, y, dx, rows, cols, p, stream);
    } else {
        launch<__nv_bfloat16>(x, bias, dy, seed, y, dx, rows, cols, p, stream);
    }
}
