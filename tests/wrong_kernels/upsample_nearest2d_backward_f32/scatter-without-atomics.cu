// Wrong: a thread per element of dy adds it to dx; copies of one element meet there
// Kata: upsample_nearest2d_backward_f32
// Sim: race
// Gpu: wrong answer
// Line: // BUG
#include "kata.cuh"
#include <cstdint>

constexpr int THREADS = 256;

// Factor 2. Narrow is what one access to dx moves, Wide one access to dy: a row of the same elements' patches.
template <typename Narrow, typename Wide>
__global__ void __launch_bounds__(THREADS) twice_kernel(
    const float* __restrict__ dy,  // [2 * rows, 2 * W]
    float* __restrict__ dx,        // [rows, W]
    int64_t rows, int64_t W) {
    constexpr int VEC = sizeof(Narrow) / sizeof(float);
    static_assert(sizeof(Wide) == 2 * sizeof(Narrow), "one load of each row of the patches fills what is stored once");
    const int64_t vecs = W / VEC;
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx >= rows * vecs) return;
    // This thread owns dx[row, col..col+VEC-1].
    const int64_t row = idx / vecs;
    const int64_t col = idx % vecs * VEC;
    alignas(Wide) float dy_rmem[2][2 * VEC];
    alignas(Narrow) float dx_rmem[VEC];
    const float* from = dy + 4 * row * W + 2 * col;
    *reinterpret_cast<Wide*>(dy_rmem[0]) = *reinterpret_cast<const Wide*>(from);
    *reinterpret_cast<Wide*>(dy_rmem[1]) = *reinterpret_cast<const Wide*>(from + 2 * W);
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
        dx_rmem[i] = (dy_rmem[0][2 * i] + dy_rmem[0][2 * i + 1]) + (dy_rmem[1][2 * i] + dy_rmem[1][2 * i + 1]);
    }
    *reinterpret_cast<Narrow*>(dx + row * W + col) = *reinterpret_cast<const Narrow*>(dx_rmem);
}

// Any factor, below 1 too.
__global__ void __launch_bounds__(THREADS) any_factor_kernel(
    const float* __restrict__ dy,  // [rows / H * OH, OW]
    float* __restrict__ dx,        // [rows, W]
    int64_t rows, int H, int W, int OH, int OW) {
    const int64_t idx = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (idx >= rows / H * OH * OW) return;
    const int64_t row = idx / OW * H / OH;
    const int64_t col = idx % OW * W / OW;
    dx[row * W + col] += dy[idx];  // BUG
}

KATA_EXPORT void upsample_nearest2d_backward_f32(
    const float* dy, float* dx, int N, int C, int H, int W, int OH, int OW, cudaStream_t stream) {
    if (N == 0) return;  // a grid of no blocks is an invalid launch
    // Planes follow each other without a gap, and their rows are those of one tall plane.
    const int64_t rows = static_cast<int64_t>(N) * C * H;
    const auto blocks = [rows](int vecs) { return static_cast<int>((rows * vecs - 1) / THREADS + 1); };
    // A row begins at a multiple of 16 bytes only where its length is a whole number of vectors.
    if (OH == 2LL * H && OW == 2LL * W && W % 2 == 0) {
        twice_kernel<float2, float4><<<blocks(W / 2), THREADS, 0, stream>>>(dy, dx, rows, W);
    } else if (OH == 2LL * H && OW == 2LL * W) {
        twice_kernel<float, float2><<<blocks(W), THREADS, 0, stream>>>(dy, dx, rows, W);
    } else {
        cudaMemsetAsync(dx, 0, rows * W * sizeof(float), stream);
        const int all = static_cast<int>((rows / H * OH * OW - 1) / THREADS + 1);
        any_factor_kernel<<<all, THREADS, 0, stream>>>(dy, dx, rows, H, W, OH, OW);
    }
}
