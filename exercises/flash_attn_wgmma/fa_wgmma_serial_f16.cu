// fa_wgmma_serial_f16: O = softmax(Q K^T / sqrt(D)) V by wgmma, one step after the other
//
// Shapes     Q, K, V, O: [B, H, N, D] f16, contiguous, 16-byte aligned bases, D = 128
// Technique  64 queries per block of one warpgroup; a loop over tiles of 128 keys by TMA; S and O in registers
// New        over wgmma_tma_128x128_nn_f16: the sums of one product are an operand of the next. S = Q K^T has both
//            operands in shared memory. P V takes P from the registers in which S was
// Bound      waiting: the Tensor Cores rest while a softmax is computed, and the softmax while they work
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <cmath>
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::tensor_map_encoder, kata::type_of_elements, kata::smem_address, kata::mbarrier_init, kata::expect,
    kata::wait;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::wgmma_m64n128k16, kata::descriptor;

constexpr int WARPGROUP = 128;  // threads: four warps
constexpr int MMA_K = 16;
constexpr int D = 128;
constexpr int BLOCK_Q = 64;    // queries per block
constexpr int BLOCK_KV = 128;  // keys, and rows of V, per tile
constexpr int BOX_COLS = 64;   // a row of a box is 128 bytes, the span of the swizzle
constexpr int BOXES = D / BOX_COLS;
constexpr int GROUP_BYTES = 1024;  // eight rows: the pattern of the swizzle
constexpr int CHUNK = 8;           // halves in 16 bytes, the unit of a descriptor's address
constexpr float LOG2_E = 1.4426950408889634f;

// A tile is BOXES boxes of BOX_COLS columns, one behind the other.
struct Smem {
    alignas(GROUP_BYTES) half Q[BOXES][BLOCK_Q * BOX_COLS];
    alignas(GROUP_BYTES) half K[BOXES][BLOCK_KV * BOX_COLS];
    alignas(GROUP_BYTES) half V[BOXES][BLOCK_KV * BOX_COLS];
    uint64_t Q_full, K_full, V_full;  // a phase ends when the tile is there
};

// A tensor map of a row-major tensor [heads, N, D]. A box lies in one head: what is past its last row is 0, not the
// first row of the next head.
inline CUtensorMap heads_map(const half* tensor, int heads, int N, int box_rows) {
    // The innermost dimension first.
    const uint64_t dims[] = {D, static_cast<uint64_t>(N), static_cast<uint64_t>(heads)};
    uint64_t strides[] = {0, 0};        // in bytes, of rows and of heads
    uint32_t box[] = {BOX_COLS, 1, 1};  // elements
    const uint32_t element_strides[] = {1, 1, 1};
    // TODO(1): The strides and the box. (~3 lines)
    // END TODO(1)
    CUtensorMap map;
    const CUresult result = tensor_map_encoder()(
        &map, type_of_elements(tensor), 3, const_cast<half*>(tensor), dims, strides, box, element_strides,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) std::printf("cuTensorMapEncodeTiled refused the map: error %d\n", result);
    return map;
}

// global -> shared: a box of a map of heads ("cp.async.bulk.tensor": the innermost coordinate first). The barrier
// counts all bytes of the box, also those past the last row.
__device__ inline void load_head_box(void* to, const CUtensorMap* map, int col, int row, int head, uint64_t* bar) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
        "[%5];" ::"r"(smem_address(to)),
        "l"(map), "r"(col), "r"(row), "r"(head), "r"(smem_address(bar))
        : "memory");
}

// A whole tile, announced to its barrier.
template <int ROWS>
__device__ inline void load_tile(
    half (&tile)[BOXES][ROWS * BOX_COLS], const CUtensorMap* map, int row, int head, uint64_t* bar) {
    expect(bar, sizeof tile);
    for (int b = 0; b < BOXES; ++b) load_head_box(tile[b], map, b * BOX_COLS, row, head, bar);
}

// c += a @ b for a [64, 16] in registers and b [16, 128] in shared memory. A lane has of a what mma.m16n8k16 wants of
// its warp's 16 rows: two adjacent elements in each register. b has its columns adjacent: the last operand transposes
// it ("Register Fragments for wgmma.mma_async.m64nNk16").
__device__ inline void wgmma_m64n128k16_rs_nn(float (&c)[64], const uint32_t (&a)[4], uint64_t b) {
    // TODO(2): wgmma.mma_async of m64n128k16 with a in registers. It adds to c. One number for a
    //   transposition is left, that of b, and it is 1. (~13 lines)
    // END TODO(2)
}

// The same as descriptor() for a tile of V, whose columns are adjacent: bits 16 to 29 have the distance of its boxes,
// bits 32 to 45 that of groups of eight keys.
__device__ inline uint64_t descriptor_of_values(const half* tile) {
    constexpr uint64_t BOX_BYTES = BLOCK_KV * BOX_COLS * sizeof(half);
    return descriptor(tile) | BOX_BYTES >> 4 << 16;
}

// S = Q K^T [64, BLOCK_KV]: one product for MMA_K columns of D.
__device__ inline void multiply_qk(float (&S_rmem)[BLOCK_KV / 2], const Smem& smem) {
    // TODO(3): A box has BOX_COLS columns. In a box, columns are as far apart as if nothing were swizzled. The first
    //   product does not add. (~6 lines)
    // END TODO(3)
}

// O += P V: one product for MMA_K keys.
__device__ inline void add_pv(float (&O_rmem)[D / 2], const uint32_t (&P_rmem)[BLOCK_KV / MMA_K][4], const Smem& smem) {
    // TODO(4): A row of a box is 128 bytes. (~4 lines)
    // END TODO(4)
}

// 2^x, accurate to 2 ulp; 0 below 2^-126 (PTX ISA, "ex2").
__device__ inline float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The running softmax of a thread's two rows: of the 16 rows of its warp lane_id / 4, and the row 8 below. Four lanes
// share a row. Elements 4 j and 4 j + 1 of S and O belong to the first row, 4 j + 2 and 4 j + 3 to the second.
struct Rows {
    float top[2] = {-INFINITY, -INFINITY};  // the largest logit so far, times scale
    float sum[2] = {0.0f, 0.0f};            // this lane's part of the sum of weights
};

// Turns logits into weights 2^(scale * logit - top) and adds them to the sums. What was summed before counts factor
// times as much as it did.
__device__ inline void weigh(Rows& rows, float (&S_rmem)[BLOCK_KV / 2], float (&factor)[2], float scale) {
    // TODO(5): Per row: the new top over the lane's elements and the row's other three lanes, the factor from the
    //   old top to the new, the weights, and their sum. (~18 lines)
    // END TODO(5)
}

// 1 / the sum of a row's weights, of all its four lanes.
__device__ inline float inverse(const Rows& rows, int r) {
    float all = rows.sum[r];
    all += __shfl_xor_sync(0xffffffff, all, 1);
    all += __shfl_xor_sync(0xffffffff, all, 2);
    return 1.0f / all;
}

// The sums of each row, factor times as large.
__device__ inline void scale_rows(float (&O_rmem)[D / 2], const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < D / 2; ++i) O_rmem[i] *= factor[i / 2 % 2];
}

// Weights as the operand a of P V. Both have the same lanes for the same rows, so nothing is exchanged.
__device__ inline void convert(uint32_t (&P_rmem)[BLOCK_KV / MMA_K][4], const float (&S_rmem)[BLOCK_KV / 2]) {
    // TODO(6): Registers 0 and 1 of a step are the first eight keys of the upper and of the lower row, 2 and 3 the
    //   other eight. (~7 lines)
    // END TODO(6)
}

__global__ void __launch_bounds__(WARPGROUP) fa_wgmma_serial_f16_kernel(
    const __grid_constant__ CUtensorMap Q_map,  // [B * H, N, D]
    const __grid_constant__ CUtensorMap K_map,  // [B * H, N, D]
    const __grid_constant__ CUtensorMap V_map,  // [B * H, N, D]
    half* __restrict__ O,                       // [B * H, N, D]
    int N, float scale) {
    alignas(GROUP_BYTES) extern __shared__ unsigned char bytes[];
    Smem& smem = *reinterpret_cast<Smem*>(bytes);
    const int head = blockIdx.y;
    const int off_q = blockIdx.x * BLOCK_Q;
    const int tiles = (N - 1) / BLOCK_KV + 1;
    const int lane_id = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        mbarrier_init(&smem.Q_full, 1);
        mbarrier_init(&smem.K_full, 1);
        mbarrier_init(&smem.V_full, 1);
        load_tile<BLOCK_Q>(smem.Q, &Q_map, off_q, head, &smem.Q_full);
        load_tile<BLOCK_KV>(smem.K, &K_map, 0, head, &smem.K_full);
        load_tile<BLOCK_KV>(smem.V, &V_map, 0, head, &smem.V_full);
    }
    __syncthreads();  // no thread waits at barriers that are not initialised
    float O_rmem[D / 2] = {};
    Rows rows;
    wait(&smem.Q_full, 0);
    for (int tile = 0; tile < tiles; ++tile) {
        float S_rmem[BLOCK_KV / 2];
        // TODO(7): S of this tile. Then the next tile of K may come, if there is one: all warps have read this one.
        //   (~7 lines)
        // END TODO(7)
        const int left = N - tile * BLOCK_KV;  // keys from this tile on
        if (left < BLOCK_KV) {
            // TODO(8): Keys past the end get no weight. Column 8 j + 2 (lane_id % 4) of the tile is element 4 j of a
            //   lane, the next column element 4 j + 1. (~3 lines)
            // END TODO(8)
        }
        float factor[2];
        weigh(rows, S_rmem, factor, scale);
        scale_rows(O_rmem, factor);
        uint32_t P_rmem[BLOCK_KV / MMA_K][4];
        convert(P_rmem, S_rmem);
        // TODO(9): O += P V of this tile. Then the next tile of V may come. (~8 lines)
        // END TODO(9)
    }
    // registers -> global: two adjacent elements at a time, of the rows that exist.
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = off_q + threadIdx.x / 32 * 16 + lane_id / 4 + 8 * r;
        const float share = inverse(rows, r);
        half* O_row = O + (static_cast<int64_t>(head) * N + row) * D + lane_id % 4 * 2;
        if (row < N) {
#pragma unroll
            for (int i = 0; i < D / 2; i += 4) {
                *reinterpret_cast<half2*>(O_row + 2 * i) =
                    __floats2half2_rn(O_rmem[i + 2 * r] * share, O_rmem[i + 2 * r + 1] * share);
            }
        }
    }
}

KATA_EXPORT void fa_wgmma_serial_f16(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    const int heads = B * H;
    const CUtensorMap Q_map = heads_map(Q, heads, N, BLOCK_Q);
    const CUtensorMap K_map = heads_map(K, heads, N, BLOCK_KV);
    const CUtensorMap V_map = heads_map(V, heads, N, BLOCK_KV);
    const dim3 grid((N - 1) / BLOCK_Q + 1, heads);
    // Weights are powers of 2: exp(x / sqrt(D)) = 2^(x log2(e) / sqrt(D)).
    const float scale = LOG2_E / std::sqrt(static_cast<float>(D));
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(fa_wgmma_serial_f16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Smem));
    fa_wgmma_serial_f16_kernel<<<grid, WARPGROUP, sizeof(Smem), stream>>>(Q_map, K_map, V_map, O, N, scale);
}
