// upsample_nearest2d_backward_f16: dx[n, c, iy, ix] = sum of all dy[n, c, oy, ox] whose y is a copy of x[n, c, iy, ix]
//
// Shapes     dy: [N, C, OH, OW], dx: [N, C, H, W] f16, contiguous, 16-byte aligned bases, any N >= 0, all others >= 1
// Technique  a gather: the owner of an element of dx knows the rectangle of dy that belongs to it; factor 2: 2x2
//            patches, two rows of 128 bits per thread
// New        over upsample_nearest2d_backward_f32: sums in float, rounded to half once, at the end
// Bound      memory bandwidth, mostly loads: at factor 2 four elements are read for each that is written
#include "kata.cuh"
#include <cstdint>
#include <cuda_fp16.h>

constexpr int THREADS = 256;

// Factor 2. Narrow is what one access to dx moves. Wide is what one access to dy moves: a row of the same elements'
// patches.
template <typename Narrow, typename Wide>
__global__ void __launch_bounds__(THREADS) twice_kernel(
    const half* __restrict__ dy,  // [2 * rows, 2 * W]
    half* __restrict__ dx,        // [rows, W]
    int64_t rows, int64_t W) {
    constexpr int VEC = sizeof(Narrow) / sizeof(half);
    static_assert(sizeof(Wide) == 2 * sizeof(Narrow), "one load of each row of the patches fills what is stored once");
    const int64_t vecs = W / VEC;
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx >= rows * vecs) return;
    // This thread owns dx[row, col..col+VEC-1].
    const int64_t row = idx / vecs;
    const int64_t col = idx % vecs * VEC;
    alignas(Wide) half dy_rmem[2][2 * VEC];
    alignas(Narrow) half dx_rmem[VEC];
    // TODO(1): global -> registers: both rows of this thread's patches by one access of type Wide each. (~3 lines)
    const half* from = dy + 4 * row * W + 2 * col;
    *reinterpret_cast<Wide*>(dy_rmem[0]) = *reinterpret_cast<const Wide*>(from);
    *reinterpret_cast<Wide*>(dy_rmem[1]) = *reinterpret_cast<const Wide*>(from + 2 * W);
    // END TODO(1)
    // TODO(2): Add up each patch in float, and store the VEC sums as half by one access of type Narrow. (~6 lines)
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
        const float upper = __half2float(dy_rmem[0][2 * i]) + __half2float(dy_rmem[0][2 * i + 1]);
        const float lower = __half2float(dy_rmem[1][2 * i]) + __half2float(dy_rmem[1][2 * i + 1]);
        dx_rmem[i] = __float2half(upper + lower);
    }
    *reinterpret_cast<Narrow*>(dx + row * W + col) = *reinterpret_cast<const Narrow*>(dx_rmem);
    // END TODO(2)
}

// Any factor, even below 1.
__global__ void __launch_bounds__(THREADS) any_factor_kernel(
    const half* __restrict__ dy,  // [rows / H * OH, OW]
    half* __restrict__ dx,        // [rows, W]
    int64_t rows, int H, int W, int OH, int OW) {
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx >= rows * W) return;
    // This thread owns dx[row, col].
    const int64_t row = idx / W;
    const int64_t col = idx % W;
    float sum = 0.0f;
    // TODO(3): Find the rows and the columns of dy that hold the copies of dx[row, col], and add these elements. There
    //   may be no copies. Row q of y shows row q * H / OH of x, rounded down, across planes, too. (~7 lines)
    const int64_t first_q = (row * OH + H - 1) / H;
    const int64_t end_q = ((row + 1) * OH + H - 1) / H;
    const int64_t first_o = (col * OW + W - 1) / W;
    const int64_t end_o = ((col + 1) * OW + W - 1) / W;
    for (int64_t q = first_q; q < end_q; ++q) {
        for (int64_t o = first_o; o < end_o; ++o) sum += __half2float(dy[q * OW + o]);
    }
    // END TODO(3)
    dx[idx] = __float2half(sum);
}

KATA_EXPORT void upsample_nearest2d_backward_f16(
    const half* dy, half* dx, int N, int C, int H, int W, int OH, int OW, cudaStream_t stream) {
    if (N == 0) return;  // a grid of no blocks is an invalid launch
    // Planes follow each other without a gap, so their rows form one tall plane.
    const int64_t rows = static_cast<int64_t>(N) * C * H;
    const auto blocks = [rows](int vecs) { return static_cast<int>((rows * vecs - 1) / THREADS + 1); };
    // A row begins at a multiple of 16 bytes only where its length is a whole number of vectors.
    if (OH == 2LL * H && OW == 2LL * W && W % 4 == 0) {
        twice_kernel<uint2, uint4><<<blocks(W / 4), THREADS, 0, stream>>>(dy, dx, rows, W);
    } else if (OH == 2LL * H && OW == 2LL * W) {
        twice_kernel<half, half2><<<blocks(W), THREADS, 0, stream>>>(dy, dx, rows, W);
    } else {
        any_factor_kernel<<<blocks(W), THREADS, 0, stream>>>(dy, dx, rows, H, W, OH, OW);
    }
}
