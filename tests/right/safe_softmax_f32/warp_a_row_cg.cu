// a warp a row with cg::reduce, rows by a grid-stride loop
#include "kata.cuh"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
#include <math_constants.h>
#include <cstring>
#include <cmath>

struct Larger {
    __device__ float operator()(float a, float b) const { return a != a || a > b ? a : b; }
};
__global__ void rowwise(const float* x, float* y, int rows, int cols) {
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    for (int row = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank(); row < rows;
         row += gridDim.x * warp.meta_group_size()) {
        const float* from = x + (size_t)row * cols;
        float m = -INFINITY, sum = 0;
        for (int i = warp.thread_rank(); i < cols; i += 32) m = Larger()(from[i], m);
        m = cg::reduce(warp, m, Larger());
        for (int i = warp.thread_rank(); i < cols; i += 32) sum += __expf(from[i] - m);
        sum = cg::reduce(warp, sum, cg::plus<float>());
        for (int i = warp.thread_rank(); i < cols; i += 32) y[(size_t)row * cols + i] = __expf(from[i] - m) / sum;
    }
}
KATA_EXPORT void safe_softmax_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    rowwise<<<3, 128, 0, stream>>>(x, y, rows, cols);
}
