// (maximum, sum) as one 64-bit word through shuffles
#include "kata.cuh"
#include <math_constants.h>
#include <cstring>
#include <cmath>

struct alignas(8) State {
    float m, s;
};
__device__ State join(State a, State b) {
    const float m = a.m != a.m || a.m > b.m ? a.m : b.m;
    if (m == -INFINITY) return {m, a.s + b.s};
    const auto part = [&](State c) { return c.s == 0 ? 0.0f : c.s * expf(c.m - m); };
    return {m, part(a) + part(b)};
}
__device__ State from_lane(State a, int mask) {
    unsigned long long word;
    memcpy(&word, &a, 8);
    word = __shfl_xor_sync(~0u, word, mask);
    memcpy(&a, &word, 8);
    return a;
}
__global__ void rowwise(const float* x, float* y, int rows, int cols) {
    const int row = blockIdx.x;
    State state = {-INFINITY, 0};
    for (int i = threadIdx.x; i < cols; i += 32) state = join(state, {x[(size_t)row * cols + i], 1});
    for (int mask = 1; mask < 32; mask *= 2) state = join(state, from_lane(state, mask));
    for (int i = threadIdx.x; i < cols; i += 32) {
        const float v = x[(size_t)row * cols + i];
        y[(size_t)row * cols + i] = state.m == -INFINITY ? NAN : expf(v - state.m) / state.s;
    }
}
KATA_EXPORT void online_safe_softmax_f32(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    rowwise<<<rows, 32, 0, stream>>>(x, y, rows, cols);
}
