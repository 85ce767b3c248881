// upsample_nearest2d_f16: y[n, c, oy, ox] = x[n, c, oy * H / OH, ox * W / OW], the divisions rounded down
//
// Shapes     x: [N, C, H, W], y: [N, C, OH, OW] f16, contiguous, 16-byte aligned bases, any N >= 0, all others >= 1
// Technique  factor 2: a thread turns four neighbours of x into 2x2 patches, two rows of 128 bits; else: it finds eight
//            neighbours of a row of y once, and stores them into every row of y that shows the same row of x
// New        over upsample_nearest2d_f32: twice as many elements per thread, for the same 128 bits per store
// Bound      memory bandwidth, mostly stores: at factor 2 four elements are written for each that is read
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;

// Factor 2. Narrow is what one access to x moves. Wide is what one access to y moves: the same elements, each twice.
template <typename Narrow, typename Wide>
__global__ void __launch_bounds__(THREADS) twice_kernel(
    const half* __restrict__ x,  // [rows, W]
    half* __restrict__ y,        // [2 * rows, 2 * W]
    int64_t rows, int64_t W) {
    constexpr int VEC = sizeof(Narrow) / sizeof(half);
    static_assert(sizeof(Wide) == 2 * sizeof(Narrow), "what is loaded once fills one store to each row of its patches");
    const int64_t vecs = W / VEC;
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx >= rows * vecs) return;
    // This thread owns x[row, col..col+VEC-1].
    const int64_t row = idx / vecs;
    const int64_t col = idx % vecs * VEC;
    alignas(Narrow) half x_rmem[VEC];
    alignas(Wide) half y_rmem[2 * VEC];
    // TODO(1): global -> registers: this thread's VEC elements of x by one access of type Narrow. Each of them goes
    //   into y_rmem twice, side by side. (~6 lines)
    // END TODO(1)
    // TODO(2): registers -> global: both rows of the patches by one access of type Wide each. (~3 lines)
    // END TODO(2)
}

// Any factor, even below 1. Pack is what one access to y moves.
template <typename Pack>
__global__ void __launch_bounds__(THREADS) any_factor_kernel(
    const half* __restrict__ x,  // [rows, W]
    half* __restrict__ y,        // [rows / H * OH, OW]
    int64_t rows, int H, int W, int OH, int OW) {
    constexpr int VEC = sizeof(Pack) / sizeof(half);
    const int64_t vecs = OW / VEC;
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx >= rows * vecs) return;
    // This thread owns columns col..col+VEC-1 of those rows of y that show this row of x.
    const int64_t row = idx / vecs;
    const int64_t col = idx % vecs * VEC;
    const half* x_row = x + row * W;
    alignas(Pack) half y_rmem[VEC];
    // TODO(3): global -> registers: for each of the VEC columns of y, its element of this row of x. The dividend grows
    //   by W per column. A division costs some twenty instructions: use one for the first column and one for the step.
    //   (~8 lines)
    // END TODO(3)
    // TODO(4): registers -> global: store into every row of y that shows this row of x, by one access of type Pack
    //   each. There may be no such row. Row q of y shows row q * H / OH of x, rounded down, across planes, too.
    //   (~5 lines)
    // END TODO(4)
}

KATA_EXPORT void upsample_nearest2d_f16(
    const half* x, half* y, int N, int C, int H, int W, int OH, int OW, cudaStream_t stream) {
    if (N == 0) return;  // a grid of no blocks is an invalid launch
    // Planes follow each other without a gap, so their rows form one tall plane.
    const int64_t rows = static_cast<int64_t>(N) * C * H;
    const auto blocks = [rows](int vecs) { return static_cast<int>((rows * vecs - 1) / THREADS + 1); };
    // A row begins at a multiple of 16 bytes only where its length is a whole number of vectors.
    if (OH == 2LL * H && OW == 2LL * W && W % 4 == 0) {
        twice_kernel<uint2, uint4><<<blocks(W / 4), THREADS, 0, stream>>>(x, y, rows, W);
    } else if (OH == 2LL * H && OW == 2LL * W) {
        twice_kernel<half, half2><<<blocks(W), THREADS, 0, stream>>>(x, y, rows, W);
    } else if (OW % 8 == 0) {
        any_factor_kernel<uint4><<<blocks(OW / 8), THREADS, 0, stream>>>(x, y, rows, H, W, OH, OW);
    } else {
        any_factor_kernel<half><<<blocks(OW), THREADS, 0, stream>>>(x, y, rows, H, W, OH, OW);
    }
}
