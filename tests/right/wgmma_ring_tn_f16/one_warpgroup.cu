// 64 x 128 tiles, one warpgroup, a ring of four stages, stores from registers
#include "kata.cuh"
#include <cuda_fp16.h>
#include "kata_wgmma.cuh"

// One warpgroup per block: 64 x 128 of C, slices of 64 k, a ring of STAGES slices filled by the copy engine.
constexpr int BM = 64, BN = 128, BK = 64, STAGES = 4;
constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2;

__global__ void __launch_bounds__(128) gemm(
    const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, half* C, int M, int N,
    int K) {
    extern __shared__ char raw[];
    char* const smem = raw + (1024 - kata::smem_address(raw) % 1024) % 1024;
    __shared__ uint64_t full[STAGES];
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN, slices = (K - 1) / BK + 1;
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; ++s) kata::mbarrier_init(&full[s], 1);
    __syncthreads();
    auto load = [&](int j) {
        char* at = smem + j % STAGES * (A_BYTES + B_BYTES);
        kata::expect(&full[j % STAGES], A_BYTES + B_BYTES);
        kata::load_box(at, &a_map, j * BK, row0, &full[j % STAGES]);
        kata::load_box(at + A_BYTES, &b_map, j * BK, col0, &full[j % STAGES]);
    };
    if (threadIdx.x == 0)
        for (int j = 0; j < STAGES - 1 && j < slices; ++j) load(j);
    float c[64] = {};
    for (int j = 0; j < slices; ++j) {
        kata::wait(&full[j % STAGES], j / STAGES % 2);
        const char* at = smem + j % STAGES * (A_BYTES + B_BYTES);
        const uint64_t a = kata::descriptor(at), b = kata::descriptor(at + A_BYTES);
        kata::wgmma_fence();
#pragma unroll
        for (int k = 0; k < BK / 16; ++k) kata::wgmma_m64n128k16(c, a + k * 2, b + k * 2, true);
        kata::wgmma_commit();
        kata::wgmma_wait<0>();
        __syncthreads();
        if (threadIdx.x == 0 && j + STAGES - 1 < slices) load(j + STAGES - 1);
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int r = row0 + warp * 16 + lane / 4 + 8 * h;
        if (r >= M) continue;
#pragma unroll
        for (int n = 0; n < BN / 8; ++n) {
            const int col = col0 + n * 8 + lane % 4 * 2;
            if (col < N)
                *reinterpret_cast<half2*>(C + static_cast<size_t>(r) * N + col) =
                    __floats2half2_rn(c[4 * n + 2 * h], c[4 * n + 2 * h + 1]);
        }
    }
}

KATA_EXPORT void wgmma_ring_tn_f16(const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    const int bytes = STAGES * (A_BYTES + B_BYTES) + 1024;
    cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    gemm<<<dim3((N - 1) / BN + 1, (M - 1) / BM + 1), 128, bytes, stream>>>(
        kata::swizzled_map(A, M, K, BM), kata::swizzled_map(B, N, K, BN), C, M, N, K);
}
