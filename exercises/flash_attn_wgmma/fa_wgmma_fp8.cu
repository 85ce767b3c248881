// fa_wgmma_fp8: O = softmax(Q K^T / sqrt(D)) V for e4m3, V transposed by the producer's warps
//
// Shapes     Q, K, V: [B, H, N, D] e4m3, sq, sk, sv: [B, H] f32, O: [B, H, N, D] f16, contiguous, 16-byte aligned
//            bases, D = 128. The tensors are sq Q, sk K and sv V
// Technique  128 queries per block, 64 per consumer; a warp that loads, three that transpose V, two consumer
//            warpgroups; two slots each for K, V and V^T
// New        over fa_wgmma_overlap_f16: bytes have no transpose bit, so warps of the producer write V^T. The order of
//            its keys is that of P in the registers of S. O is kept in float, as products of e4m3 add in fewer bits
// Bound      Tensor Cores and exponentials, which take the same time
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <cmath>
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

// From kata_tma.cuh:
using kata::tensor_map_encoder, kata::smem_address, kata::mbarrier_init, kata::expect, kata::arrive, kata::wait,
    kata::fence_proxy;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::descriptor, kata::fewer_registers,
    kata::more_registers;

constexpr int WARP = 32;
constexpr int WARPGROUP = 128;  // threads: four warps
constexpr int MMA_K = 32;
constexpr int D = 128;        // a row of a tile is 128 bytes, the span of the swizzle
constexpr int CHUNK = 16;     // elements in 16 bytes, the unit of a descriptor's address and of the swizzle
constexpr int CHUNKS = 8;     // in a row of a tile
constexpr int CONSUMERS = 2;  // warpgroups
constexpr int TRANSPOSERS = WARPGROUP - WARP;         // threads of the producer's warpgroup
constexpr int MMA_M = 64;                             // queries per consumer
constexpr int BLOCK_Q = CONSUMERS * MMA_M;            // queries per block
constexpr int BLOCK_KV = 128;                         // keys, and rows of V, per tile
constexpr int STAGES = 2;                             // slots for tiles of K, and as many for V and V^T
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;  // the producer's warpgroup, then the consumers'
constexpr int PRODUCER_REGISTERS = 40;
constexpr int CONSUMER_REGISTERS = 232;
static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= (1 + CONSUMERS) * 168, "the SM has no more");
constexpr int GROUP_BYTES = 1024;  // eight rows: the pattern of the swizzle
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LOG2_LARGEST = 8.0f;  // the largest weight of a row is 256 when it is rounded; e4m3 ends at 448

struct Smem {
    alignas(GROUP_BYTES) __nv_fp8_e4m3 Q[BLOCK_Q * D];
    alignas(GROUP_BYTES) __nv_fp8_e4m3 K[STAGES][BLOCK_KV * D];
    alignas(GROUP_BYTES) __nv_fp8_e4m3 V[STAGES][BLOCK_KV * D];
    alignas(GROUP_BYTES) __nv_fp8_e4m3 V_T[STAGES][D * BLOCK_KV];
    uint64_t Q_full, K_full[STAGES], V_full[STAGES], V_T_full[STAGES];  // a phase ends when the tile is there,
    uint64_t K_empty[STAGES], V_empty[STAGES], V_T_empty[STAGES];       // and when it has been read
};

// A tensor map of a row-major tensor [heads, N, D]. A box lies in one head: what is past its last row is 0, not the
// first row of the next head.
inline CUtensorMap heads_map(const __nv_fp8_e4m3* tensor, int heads, int N, int box_rows) {
    // The innermost dimension first.
    const uint64_t dims[] = {D, static_cast<uint64_t>(N), static_cast<uint64_t>(heads)};
    uint64_t strides[] = {D, 0};  // in bytes, of rows and of heads
    uint32_t box[] = {D, 1, 1};   // elements
    const uint32_t element_strides[] = {1, 1, 1};
    strides[1] = N * strides[0];
    box[1] = box_rows;
    CUtensorMap map;
    const CUresult result = tensor_map_encoder()(
        &map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, const_cast<__nv_fp8_e4m3*>(tensor), dims, strides, box, element_strides,
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
    __nv_fp8_e4m3 (&tile)[ROWS * D], const CUtensorMap* map, int row, int head, uint64_t* bar) {
    expect(bar, sizeof tile);
    load_head_box(tile, map, 0, row, head, bar);
}

// shared -> registers: four 8 x 8 matrices of 16-bit elements. Lane l passes the address of row l % 8 of matrix l / 8
// ("ldmatrix"). As a transposed matrix is read, a register has elements 2 (l % 4) and 2 (l % 4) + 1 of column l / 4.
__device__ inline void ldmatrix_x4_trans(uint32_t (&regs)[4], const __nv_fp8_e4m3* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3])
                 : "r"(smem_address(row))
                 : "memory");
}

// registers -> shared: four such matrices, not transposed. A register has elements 2 (l % 4) and 2 (l % 4) + 1 of row
// l / 4 ("stmatrix").
__device__ inline void stmatrix_x4(__nv_fp8_e4m3* row, const uint32_t (&regs)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_address(row)),
                 "r"(regs[0]), "r"(regs[1]), "r"(regs[2]), "r"(regs[3])
                 : "memory");
}

// Where the swizzle has chunk c of row r of a tile.
__device__ inline int swizzled(int r, int c) {
    return (r * CHUNKS + (c ^ r % CHUNKS)) * CHUNK;
}

// A warp's part of V^T: 16 keys, chunk c of its rows, of 32 columns. Bytes 4 q to 4 q + 3 of the chunk are keys 2 q,
// 2 q + 1, 2 q + 8 and 2 q + 9 of the 16.
__device__ inline void transpose(
    __nv_fp8_e4m3 (&V_T)[D * BLOCK_KV], const __nv_fp8_e4m3 (&V)[BLOCK_KV * D], int c, int off_col) {
    const int matrix = threadIdx.x % WARP / 8, row = threadIdx.x % 8;
    // TODO(1): Read four matrices of 8 keys and 16 columns, transposed: the first 8 keys and the last 8, of the first
    //   16 columns and of the last. A register then has two columns of two keys. Make it four keys of one column, and
    //   write them to rows of V^T, those of even and those of odd columns as matrices of their own. (~9 lines)
    // END TODO(1)
}

// c += a @ b for a [64, 32] and b [32, 128] of e4m3 in shared memory, c = a @ b where add is false. The sums are where
// those of wgmma_m64n128k16 are.
__device__ inline void wgmma_m64n128k32_e4m3(float (&c)[64], uint64_t a, uint64_t b, bool add) {
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %66, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1;\n}"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),
          "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),
          "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
          "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]),
          "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]),
          "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]),
          "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]),
          "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// The same for a [64, 32] in registers. A lane has the rows of c that it has of the sums, and in each register four
// adjacent elements: 4 (l % 4) to 4 (l % 4) + 3 of either row in the first two, and those 16 further in the others.
__device__ inline void wgmma_m64n128k32_rs_e4m3(float (&c)[64], const uint32_t (&a)[4], uint64_t b, bool add) {
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %69, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, p, 1, 1;\n}"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),
          "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),
          "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
          "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]),
          "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]),
          "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]),
          "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]),
          "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

// S = Q K^T [64, BLOCK_KV]: one product for MMA_K columns of D.
__device__ inline void multiply_qk(float (&S_rmem)[BLOCK_KV / 2], const Smem& smem, int s, int row_q) {
    const uint64_t q = descriptor(&smem.Q[row_q * D]), k = descriptor(smem.K[s]);
#pragma unroll
    for (int col = 0; col < D; col += MMA_K) wgmma_m64n128k32_e4m3(S_rmem, q + col / CHUNK, k + col / CHUNK, col > 0);
}

// R = P V of a tile: one product for MMA_K keys.
__device__ inline void multiply_pv(
    float (&R_rmem)[D / 2], const uint32_t (&P_rmem)[BLOCK_KV / MMA_K][4], const Smem& smem, int s) {
    const uint64_t v = descriptor(smem.V_T[s]);
#pragma unroll
    for (int step = 0; step < BLOCK_KV / MMA_K; ++step)
        wgmma_m64n128k32_rs_e4m3(R_rmem, P_rmem[step], v + step * MMA_K / CHUNK, step > 0);
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

// Turns logits into weights 2^(scale * logit - top + LOG2_LARGEST) and adds them to the sums. What was summed before
// counts factor times as much as it did.
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
        float shift = new_top;
        // TODO(2): Make the weight of the largest logit 2^LOG2_LARGEST, not 1. (~1 line)
        // END TODO(2)
        rows.sum[r] *= factor[r];
#pragma unroll
        for (int i = 0; i < BLOCK_KV / 2; i += 4)
#pragma unroll
            for (int e = i + 2 * r; e < i + 2 * r + 2; ++e) {
                S_rmem[e] = exp2_approx(fmaf(S_rmem[e], scale, -shift));
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

// The sums of each row, factor times as large, and those of a tile.
__device__ inline void add_tile(float (&O_rmem)[D / 2], const float (&R_rmem)[D / 2], const float (&factor)[2]) {
    // TODO(3): O = factor O + R, in float. (~1 line)
    // END TODO(3)
}

// Weights as the operand a of P V. Byte 4 q + e of 16 keys is the key that V^T has there, and the lane has its weight,
// so nothing is exchanged.
__device__ inline void convert(uint32_t (&P_rmem)[BLOCK_KV / MMA_K][4], const float (&S_rmem)[BLOCK_KV / 2]) {
    const auto pair = [](float low, float high) {
        return uint32_t{__nv_cvt_float2_to_fp8x2({low, high}, __NV_SATFINITE, __NV_E4M3)};
    };
    // TODO(4): Put four weights into each register of a product: of its first 16 keys those of the upper row, then
    //   those of the lower one, and then the same of its last 16 keys. (~5 lines)
    // END TODO(4)
}

// Keys past the end get no weight. Column 8 j + 2 (lane_id % 4) of the tile is element 4 j of a lane, the next column
// element 4 j + 1.
__device__ inline void mask(float (&S_rmem)[BLOCK_KV / 2], int left) {
    const int lane_id = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < BLOCK_KV / 2; ++i)
        if (i / 4 * 8 + lane_id % 4 * 2 + i % 2 >= left) S_rmem[i] = -INFINITY;
}

__global__ void __launch_bounds__(THREADS, 1) fa_wgmma_fp8_kernel(
    const __grid_constant__ CUtensorMap Q_map,  // [B * H, N, D]
    const __grid_constant__ CUtensorMap K_map,  // [B * H, N, D]
    const __grid_constant__ CUtensorMap V_map,  // [B * H, N, D]
    const float* __restrict__ sq,               // [B * H]
    const float* __restrict__ sk,               // [B * H]
    const float* __restrict__ sv,               // [B * H]
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
            // TODO(5): Count the threads that arrive: those that transpose read V and write V^T, and both consumers
            //   read V^T. (~3 lines)
            // END TODO(5)
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
        } else if (threadIdx.x >= WARP) {
            for (int tile = 0; tile < tiles; ++tile) {
                const int s = tile % STAGES;
                const uint32_t parity = tile / STAGES % 2;
                // TODO(6): When V is there and the consumers have read the old V^T, write V^T, each warp every third
                //   part. Then give the slot of V back, and let wgmma, which reads by the async proxy, have V^T.
                //   (~7 lines)
                // END TODO(6)
            }
        }
    } else {
        more_registers<CONSUMER_REGISTERS>();
        const int row_q = (threadIdx.x / WARPGROUP - 1) * MMA_M;  // of the tile of Q
        const int lane_id = threadIdx.x % 32;
        scale *= sq[head] * sk[head];
        float O_rmem[D / 2] = {};
        float R_rmem[D / 2];  // of a tile
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
        if (tiles > 1) wait(&smem.K_full[1 % STAGES], 1 / STAGES % 2);
        for (int tile = 1; tile < tiles; ++tile) {
            const int s = tile % STAGES, before = (tile - 1) % STAGES;
            float next_factor[2];
            wgmma_fence();
            multiply_qk(S_rmem, smem, s, row_q);
            wgmma_commit();
            wait(&smem.V_T_full[before], (tile - 1) / STAGES % 2);
            wgmma_fence();
            multiply_pv(R_rmem, P_rmem, smem, before);
            wgmma_commit();
            wgmma_wait<1>();
            arrive(&smem.K_empty[s]);
            const int left = N - tile * BLOCK_KV;  // keys from this tile on
            if (left < BLOCK_KV) mask(S_rmem, left);
            weigh(rows, S_rmem, next_factor, scale);
            // The compiler moves no wait for a group across this loop, so the softmax stays in front of the next line.
            if (tile + 1 < tiles) wait(&smem.K_full[(tile + 1) % STAGES], (tile + 1) / STAGES % 2);
            wgmma_wait<0>();
            arrive(&smem.V_T_empty[before]);
            // TODO(7): Add R to O with the factor of its own tile, and keep that of the next one. (~3 lines)
            // END TODO(7)
            convert(P_rmem, S_rmem);
        }
        const int last = tiles - 1;
        wait(&smem.V_T_full[last % STAGES], last / STAGES % 2);
        wgmma_fence();
        multiply_pv(R_rmem, P_rmem, smem, last % STAGES);
        wgmma_commit();
        wgmma_wait<0>();
        add_tile(O_rmem, R_rmem, factor);
        // registers -> global: two adjacent elements at a time, of the rows that exist.
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = off_q + row_q + threadIdx.x % WARPGROUP / 32 * 16 + lane_id / 4 + 8 * r;
            const float share = inverse(rows, r) * sv[head];
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

KATA_EXPORT void fa_wgmma_fp8(
    const __nv_fp8_e4m3* Q, const __nv_fp8_e4m3* K, const __nv_fp8_e4m3* V, const float* sq, const float* sk,
    const float* sv, half* O, int B, int H, int N, int D, cudaStream_t stream) {
    const int heads = B * H;
    const CUtensorMap Q_map = heads_map(Q, heads, N, BLOCK_Q);
    const CUtensorMap K_map = heads_map(K, heads, N, BLOCK_KV);
    const CUtensorMap V_map = heads_map(V, heads, N, BLOCK_KV);
    const dim3 grid((N - 1) / BLOCK_Q + 1, heads);
    // Weights are powers of 2: exp(x / sqrt(D)) = 2^(x log2(e) / sqrt(D)).
    const float scale = LOG2_E / std::sqrt(static_cast<float>(D));
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(fa_wgmma_fp8_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Smem));
    fa_wgmma_fp8_kernel<<<grid, THREADS, sizeof(Smem), stream>>>(Q_map, K_map, V_map, sq, sk, sv, O, N, scale);
}
