// fa_wgmma_overlap_f16: O = softmax(Q K^T / sqrt(D)) V, a tile's softmax under the product of the tile before
//
// Shapes     Q, K, V, O: [B, H, N, D] f16, contiguous, 16-byte aligned bases, D = 128
// Technique  128 queries per block, 64 per consumer; a producer and two consumer warpgroups; two slots each for K and V
// New        over fa_wgmma_two_consumers_f16: S of the next tile is begun before P V of this one. The softmax of the
//            next tile runs while the Tensor Cores are at P V
// Bound      Tensor Cores, and the power that the card may use
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <cmath>
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::tensor_map_encoder, kata::type_of_elements, kata::smem_address, kata::mbarrier_init, kata::expect,
    kata::arrive, kata::wait;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::wgmma_m64n128k16, kata::descriptor,
    kata::fewer_registers, kata::more_registers;

constexpr int WARPGROUP = 128;  // threads: four warps
constexpr int MMA_K = 16;
constexpr int D = 128;
constexpr int CONSUMERS = 2;                          // warpgroups
constexpr int MMA_M = 64;                             // queries per consumer
constexpr int BLOCK_Q = CONSUMERS * MMA_M;            // queries per block
constexpr int BLOCK_KV = 128;                         // keys, and rows of V, per tile
constexpr int STAGES = 2;                             // slots for tiles of K, and as many for tiles of V
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;  // the producer's warpgroup, then the consumers'
constexpr int PRODUCER_REGISTERS = 24;
constexpr int CONSUMER_REGISTERS = 240;
static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= (1 + CONSUMERS) * 168, "the SM has no more");
constexpr int BOX_COLS = 64;  // a row of a box is 128 bytes, the span of the swizzle
constexpr int BOXES = D / BOX_COLS;
constexpr int GROUP_BYTES = 1024;  // eight rows: the pattern of the swizzle
constexpr int CHUNK = 8;           // halves in 16 bytes, the unit of a descriptor's address
constexpr float LOG2_E = 1.4426950408889634f;

// A tile is BOXES boxes of BOX_COLS columns, one behind the other.
struct Smem {
    alignas(GROUP_BYTES) half Q[BOXES][BLOCK_Q * BOX_COLS];
    alignas(GROUP_BYTES) half K[STAGES][BOXES][BLOCK_KV * BOX_COLS];
    alignas(GROUP_BYTES) half V[STAGES][BOXES][BLOCK_KV * BOX_COLS];
    uint64_t Q_full, K_full[STAGES], V_full[STAGES];  // a phase ends when the tile is there,
    uint64_t K_empty[STAGES], V_empty[STAGES];        // and when it has been multiplied
};

// A tensor map of a row-major tensor [heads, N, D]. A box lies in one head: what is past its last row is 0, not the
// first row of the next head.
inline CUtensorMap heads_map(const half* tensor, int heads, int N, int box_rows) {
    // The innermost dimension first.
    const uint64_t dims[] = {D, static_cast<uint64_t>(N), static_cast<uint64_t>(heads)};
    uint64_t strides[] = {0, 0};        // in bytes, of rows and of heads
    uint32_t box[] = {BOX_COLS, 1, 1};  // elements
    const uint32_t element_strides[] = {1, 1, 1};
    strides[0] = D * sizeof(half);
    strides[1] = N * strides[0];
    box[1] = box_rows;
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
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),
          "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),
          "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
          "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]),
          "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]),
          "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]),
          "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]),
          "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// The same as descriptor() for a tile of V, whose columns are adjacent: bits 16 to 29 have the distance of its boxes,
// bits 32 to 45 that of groups of eight keys.
__device__ inline uint64_t descriptor_of_values(const half* tile) {
    constexpr uint64_t BOX_BYTES = BLOCK_KV * BOX_COLS * sizeof(half);
    return descriptor(tile) | BOX_BYTES >> 4 << 16;
}

// S = Q K^T [64, BLOCK_KV]: one product for MMA_K columns of D.
__device__ inline void multiply_qk(float (&S_rmem)[BLOCK_KV / 2], const Smem& smem, int s, int row_q) {
#pragma unroll
    for (int col = 0; col < D; col += MMA_K) {
        const uint64_t q = descriptor(&smem.Q[col / BOX_COLS][row_q * BOX_COLS]) + col % BOX_COLS / CHUNK;
        const uint64_t k = descriptor(smem.K[s][col / BOX_COLS]) + col % BOX_COLS / CHUNK;
        wgmma_m64n128k16(S_rmem, q, k, col > 0);
    }
}

// O += P V: one product for MMA_K keys.
__device__ inline void add_pv(
    float (&O_rmem)[D / 2], const uint32_t (&P_rmem)[BLOCK_KV / MMA_K][4], const Smem& smem, int s) {
    const uint64_t V = descriptor_of_values(smem.V[s][0]);
#pragma unroll
    for (int step = 0; step < BLOCK_KV / MMA_K; ++step)
        wgmma_m64n128k16_rs_nn(O_rmem, P_rmem[step], V + step * MMA_K * BOX_COLS / CHUNK);
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
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float largest = S_rmem[2 * r];
#pragma unroll
        for (int i = 0; i < BLOCK_KV / 2; i += 4)
            largest = fmaxf(largest, fmaxf(S_rmem[i + 2 * r], S_rmem[i + 2 * r + 1]));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
        const float new_top = fmaxf(rows.top[r], largest * scale);
        factor[r] = exp2_approx(rows.top[r] - new_top);
        rows.top[r] = new_top;
        rows.sum[r] *= factor[r];
#pragma unroll
        for (int i = 0; i < BLOCK_KV / 2; i += 4)
#pragma unroll
            for (int e = i + 2 * r; e < i + 2 * r + 2; ++e) {
                S_rmem[e] = exp2_approx(fmaf(S_rmem[e], scale, -new_top));
                rows.sum[r] += S_rmem[e];
            }
    }
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
#pragma unroll
    for (int i = 0; i < BLOCK_KV / 4; ++i) {
        const half2 pair = __floats2half2_rn(S_rmem[2 * i], S_rmem[2 * i + 1]);
        P_rmem[i / 4][i % 4] = reinterpret_cast<const uint32_t&>(pair);
    }
}

// Keys past the end get no weight. Column 8 j + 2 (lane_id % 4) of the tile is element 4 j of a lane, the next column
// element 4 j + 1.
__device__ inline void mask(float (&S_rmem)[BLOCK_KV / 2], int left) {
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < BLOCK_KV / 2; ++i)
        if (i / 4 * 8 + lane_id % 4 * 2 + i % 2 >= left) S_rmem[i] = -INFINITY;
}

__global__ void __launch_bounds__(THREADS, 1) fa_wgmma_overlap_f16_kernel(
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
    if (threadIdx.x == 0) {
        mbarrier_init(&smem.Q_full, 1);
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&smem.K_full[s], 1);
            mbarrier_init(&smem.V_full[s], 1);
            mbarrier_init(&smem.K_empty[s], CONSUMERS * WARPGROUP);
            mbarrier_init(&smem.V_empty[s], CONSUMERS * WARPGROUP);
        }
    }
    __syncthreads();  // no thread uses barriers that are not initialised
    if (threadIdx.x < WARPGROUP) {
        fewer_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) {
            load_tile<BLOCK_Q>(smem.Q, &Q_map, off_q, head, &smem.Q_full);
            for (int tile = 0; tile < tiles; ++tile) {
                const int s = tile % STAGES;
                const uint32_t parity = tile / STAGES % 2 ^ 1;
                wait(&smem.K_empty[s], parity);
                load_tile<BLOCK_KV>(smem.K[s], &K_map, tile * BLOCK_KV, head, &smem.K_full[s]);
                wait(&smem.V_empty[s], parity);
                load_tile<BLOCK_KV>(smem.V[s], &V_map, tile * BLOCK_KV, head, &smem.V_full[s]);
            }
        }
    } else {
        more_registers<CONSUMER_REGISTERS>();
        const int row_q = (threadIdx.x / WARPGROUP - 1) * MMA_M;  // of the tile of Q
        const int lane_id = threadIdx.x % 32;
        float O_rmem[D / 2] = {};
        Rows rows;
        wait(&smem.Q_full, 0);
        float S_rmem[BLOCK_KV / 2];
        float factor[2];
        uint32_t P_rmem[BLOCK_KV / MMA_K][4];
        wait(&smem.K_full[0], 0);
        wgmma_fence();
        multiply_qk(S_rmem, smem, 0, row_q);
        wgmma_commit();
        wgmma_wait<0>();
        arrive(&smem.K_empty[0]);
        if (N < BLOCK_KV) mask(S_rmem, N);
        weigh(rows, S_rmem, factor, scale);
        convert(P_rmem, S_rmem);
        // TODO(1): For each further tile: begin S of it, then O += P V of the tile before, as two groups. The softmax
        //   of the new S runs under P V. P and O may change only when P V is done. Every slot is given back as soon as
        //   its products are done. Look at the SASS: is the wait for P V behind the softmax there, too? (~22 lines)
        if (tiles > 1) wait(&smem.K_full[1 % STAGES], 1 / STAGES % 2);
        for (int tile = 1; tile < tiles; ++tile) {
            const int s = tile % STAGES, before = (tile - 1) % STAGES;
            wgmma_fence();
            multiply_qk(S_rmem, smem, s, row_q);
            wgmma_commit();
            wait(&smem.V_full[before], (tile - 1) / STAGES % 2);
            wgmma_fence();
            add_pv(O_rmem, P_rmem, smem, before);
            wgmma_commit();
            wgmma_wait<1>();
            arrive(&smem.K_empty[s]);
            const int left = N - tile * BLOCK_KV;  // keys from this tile on
            if (left < BLOCK_KV) mask(S_rmem, left);
            weigh(rows, S_rmem, factor, scale);
            // The compiler moves no wait for a group across this loop, so the softmax stays in front of the next line.
            if (tile + 1 < tiles) wait(&smem.K_full[(tile + 1) % STAGES], (tile + 1) / STAGES % 2);
            wgmma_wait<0>();
            arrive(&smem.V_empty[before]);
            scale_rows(O_rmem, factor);
            convert(P_rmem, S_rmem);
        }
        // END TODO(1)
        // TODO(2): O += P V of the last tile. No one waits for its slot. (~6 lines)
        const int last = tiles - 1;
        wait(&smem.V_full[last % STAGES], last / STAGES % 2);
        wgmma_fence();
        add_pv(O_rmem, P_rmem, smem, last % STAGES);
        wgmma_commit();
        wgmma_wait<0>();
        // END TODO(2)
        // registers -> global: two adjacent elements at a time, of the rows that exist.
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = off_q + row_q + threadIdx.x % WARPGROUP / 32 * 16 + lane_id / 4 + 8 * r;
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
}

KATA_EXPORT void fa_wgmma_overlap_f16(
    const half* Q, const half* K, const half* V, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    const int heads = B * H;
    const CUtensorMap Q_map = heads_map(Q, heads, N, BLOCK_Q);
    const CUtensorMap K_map = heads_map(K, heads, N, BLOCK_KV);
    const CUtensorMap V_map = heads_map(V, heads, N, BLOCK_KV);
    const dim3 grid((N - 1) / BLOCK_Q + 1, heads);
    // Weights are powers of 2: exp(x / sqrt(D)) = 2^(x log2(e) / sqrt(D)).
    const float scale = LOG2_E / std::sqrt(static_cast<float>(D));
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(fa_wgmma_overlap_f16_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Smem));
    fa_wgmma_overlap_f16_kernel<<<grid, THREADS, sizeof(Smem), stream>>>(Q_map, K_map, V_map, O, N, scale);
}
