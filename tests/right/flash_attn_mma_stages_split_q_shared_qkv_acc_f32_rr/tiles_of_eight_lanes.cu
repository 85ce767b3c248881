// eight lanes a query as a tiled_partition, cg::reduce for each product, cg::memcpy_async for keys and values
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cuda/barrier>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cmath>

namespace cg = cooperative_groups;
constexpr int KEYS = 16;

template <int D>
__global__ void __launch_bounds__(128) queries(const half* Q, const half* K, const half* V, half* O, int N) {
    __shared__ __align__(16) half k[KEYS * D], v[KEYS * D];
    const cg::thread_block block = cg::this_thread_block();
    const cg::thread_block_tile<8> lanes = cg::tiled_partition<8>(block);
    const int query = blockIdx.x * 16 + lanes.meta_group_rank(), lane = lanes.thread_rank();
    const size_t base = (size_t)blockIdx.y * N * D;
    float q[D / 8], o[D / 8] = {}, m = -INFINITY, sum = 0;
    for (int d = 0; d < D / 8; ++d) q[d] = __half2float(Q[base + (size_t)min(query, N - 1) * D + d * 8 + lane]);
    for (int j0 = 0; j0 < N; j0 += KEYS) {
        const int count = min(KEYS, N - j0);
        cg::memcpy_async(block, k, K + base + (size_t)j0 * D, cuda::aligned_size_t<16>(count * D * sizeof(half)));
        cg::memcpy_async(block, v, V + base + (size_t)j0 * D, cuda::aligned_size_t<16>(count * D * sizeof(half)));
        cg::wait(block);
        float x[KEYS], larger = m;
        for (int j = 0; j < count; ++j) {
            float part = 0;
            for (int d = 0; d < D / 8; ++d) part += q[d] * __half2float(k[j * D + d * 8 + lane]);
            x[j] = cg::reduce(lanes, part, cg::plus<float>()) * rsqrtf(D);
            larger = fmaxf(larger, x[j]);
        }
        const float shrink = expf(m - larger);
        for (int d = 0; d < D / 8; ++d) o[d] *= shrink;
        sum *= shrink;
        m = larger;
        for (int j = 0; j < count; ++j) {
            const float weight = expf(x[j] - m);
            sum += weight;
            for (int d = 0; d < D / 8; ++d) o[d] += weight * __half2float(v[j * D + d * 8 + lane]);
        }
        block.sync();
    }
    if (query < N)
        for (int d = 0; d < D / 8; ++d) O[base + (size_t)query * D + d * 8 + lane] = __float2half(o[d] / sum);
}
template <int D>
void run(const half* Q, const half* K, const half* V, half* O, int heads, int N, cudaStream_t stream) {
    queries<D><<<dim3((N + 15) / 16, heads), 128, 0, stream>>>(Q, K, V, O, N);
}
KATA_EXPORT void flash_attn_mma_stages_split_q_shared_qkv_acc_f32_rr(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    if (D == 32) run<32>(Q, K, V, O, B * H, N, stream);
    if (D == 64) run<64>(Q, K, V, O, B * H, N, stream);
    if (D == 96) run<96>(Q, K, V, O, B * H, N, stream);
    if (D == 128) run<128>(Q, K, V, O, B * H, N, stream);
}
