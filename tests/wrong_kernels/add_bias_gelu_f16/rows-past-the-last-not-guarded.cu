// Wrong: all four rows of a thread are loaded and stored, whether they exist or not
// Kata: add_bias_gelu_f16
// Sim: out of bounds
// Gpu: out of bounds
// Line: // BUG
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int ROWS = 4;  // rows of a thread, one below the other

constexpr float SQRT_2_OVER_PI = 0.7978845608f;
constexpr float LOG2_E = 1.4426950409f;

// x / (1 + exp(-2u)), u = SQRT_2_OVER_PI (x + 0.044715 x^3). The unit that computes exponentials has the base 2, and
// all constant factors on the way to it are one.
__device__ __forceinline__ float gelu(float x) {
    const float exponent = -2.0f * LOG2_E * SQRT_2_OVER_PI * x * fmaf(0.044715f * x, x, 1.0f);
    return __fdividef(x, 1.0f + exp2f(exponent));
}

// Pack is what one access moves. Its VEC elements divide cols: a vector lies in the row as a whole or not at all, and
// every row starts at a multiple of its size.
template <typename Pack>
constexpr int VEC = sizeof(Pack) / sizeof(half);

template <typename Pack>
__global__ void __launch_bounds__(THREADS) add_bias_gelu_f16_kernel(
    const half* __restrict__ x, const half* __restrict__ bias, half* __restrict__ y, int rows, int cols) {
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    int64_t row = 0;  // this thread owns rows row..row+ROWS-1
    int col = 0;      // and of these columns col..col+VEC-1
    const int vectors = cols / VEC<Pack>;
    row = idx / vectors * ROWS;
    col = static_cast<int>(idx % vectors) * VEC<Pack>;
    const int64_t here = rows - row;  // rows from row on: perhaps less than ROWS, perhaps none
    Pack bias_rmem = {};
    Pack x_rmem[ROWS] = {};
    bias_rmem = *reinterpret_cast<const Pack*>(bias + col);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        if (here > 0) x_rmem[i] = *reinterpret_cast<const Pack*>(x + (row + i) * cols + col);  // BUG
    }
    const half* addend = reinterpret_cast<const half*>(&bias_rmem);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        half* element = reinterpret_cast<half*>(&x_rmem[i]);
#pragma unroll
        for (int j = 0; j < VEC<Pack>; ++j) {
            element[j] = __float2half(gelu(__half2float(element[j]) + __half2float(addend[j])));
        }
        if (here > 0) *reinterpret_cast<Pack*>(y + (row + i) * cols + col) = x_rmem[i];
    }
}

template <typename Pack>
void launch(const half* x, const half* bias, half* y, int rows, int cols, cudaStream_t stream) {
    const int64_t threads = ((rows - 1) / ROWS + 1) * static_cast<int64_t>(cols / VEC<Pack>);
    const auto blocks = static_cast<unsigned>((threads - 1) / THREADS + 1);
    add_bias_gelu_f16_kernel<Pack><<<blocks, THREADS, 0, stream>>>(x, bias, y, rows, cols);
}

KATA_EXPORT void add_bias_gelu_f16(const half* x, const half* bias, half* y, int rows, int cols, cudaStream_t stream) {
    if (rows == 0) return;  // a grid of no blocks is an invalid launch
    // Only where 8 divides cols do all rows start at a multiple of 16 bytes.
    if (cols % 8 == 0) {
        launch<uint4>(x, bias, y, rows, cols, stream);
    } else {
        launch<half>(x, bias, y, rows, cols, stream);
    }
}
