// w4a16_gemm_wgmma_f16: y = x W^T for up to 64 rows of x by wgmma, W[n, k] = s[k / 128, n] * (u[n, k] - 8) in 4 bits
//
// Shapes     x: [T, K], y: [T, N] f16, q: [K / 16, N / 64, 32, 4] int, s: [K / 128, N] f16, contiguous, 16-byte aligned
//            bases, T from 1 to 64, N = 64 * tiles, K = 128 * groups, tiles, groups >= 1. Nibble p of word j of lane l,
//            p from 0 to 3, is u[n, k], nibble p + 4 is u[n, k + 1], with n = 64 * tile + 16 * j + p / 2 * 8 + l / 4
//            and k = 16 * step + p % 2 * 8 + l % 4 * 2. The product s * (u - 8) may be rounded to f16
// Technique  wgmma computes y^T = W x^T: the unpacked weights are operand a, in registers, the rows of x are operand b,
//            in shared memory. Two warpgroups share a ring of slices by TMA, and each unpacks half of the words; K is
//            split where the columns are too few for all SMs
// New        over w4a16_gemm_f16: W and x change places, because wgmma takes only a from registers. Its products run
//            while the next weights are unpacked
// Bound      memory bandwidth
#include "kata.cuh"
#include "kata_tma.cuh"
#include "kata_wgmma.cuh"
#include <algorithm>
#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::tensor_map_encoder, kata::matrix_map, kata::swizzled_map, kata::smem_address, kata::mbarrier_init,
    kata::expect, kata::wait, kata::load_box;
// From kata_wgmma.cuh:
using kata::wgmma_fence, kata::wgmma_commit, kata::wgmma_wait, kata::descriptor;

constexpr int WARP_SIZE = 32;
constexpr int WARPS = 4;  // of a warpgroup
constexpr int WARPGROUP = WARPS * WARP_SIZE;
constexpr int WARPGROUPS = 2;  // each has half of the words of all tiles
constexpr int THREADS = WARPGROUPS * WARPGROUP;
constexpr int MMA_K = 16;
constexpr int TILE_N = 64;                     // columns of y that warps i of both warpgroups share
constexpr int WORDS = 4;                       // of a lane for a tile and a step
constexpr int WORD_N = TILE_N / WORDS;         // columns of a word
constexpr int OWN_WORDS = WORDS / WARPGROUPS;  // of these, for a warpgroup
constexpr int BLOCK_N = WARPS * TILE_N;
constexpr int GROUP = 128;            // weights that share a scale: the K of a slice
constexpr int STEPS = GROUP / MMA_K;  // per slice
constexpr int BOX_K = 64;             // a row of a box of x is 128 bytes, the span of the swizzle
constexpr int BOXES = GROUP / BOX_K;  // of x per slice
constexpr int PATTERN_BYTES = 1024;   // eight rows: the pattern of the swizzle
constexpr int SLOTS = 264;            // blocks that run at the same time on 132 SMs
constexpr int MIN_GROUPS = 4;         // per split
constexpr int REDUCE_THREADS = 256;

// Slots in the ring: two blocks fit on an SM.
template <int ROWS>
constexpr int STAGES = ROWS < 64 ? 4 : 3;

// Slices between the one to multiply and the one to copy: one slot is still read.
template <int ROWS>
constexpr int AHEAD = STAGES<ROWS> - 1;

// What a stage of the ring holds: a slice of x and of the weights, and the scales of its group.
template <int ROWS>
struct Slice {
    alignas(PATTERN_BYTES) half x[BOXES][ROWS * BOX_K];
    uint2 q[STEPS][WARPS][WARP_SIZE][WARPGROUPS];
    half s[BLOCK_N];
};

template <int ROWS>
struct Ring {
    Slice<ROWS> slices[STAGES<ROWS>];
    uint64_t full[STAGES<ROWS>];
};

// A tensor map of the words [steps, tiles, 128]. A box has the words of STEPS steps and WARPS tiles. Tiles past the
// last are zeros.
inline CUtensorMap words_map(const int* q, int steps, int tiles) {
    // The innermost dimension first.
    const uint64_t dims[] = {WARP_SIZE * WORDS, static_cast<uint64_t>(tiles), static_cast<uint64_t>(steps)};
    uint64_t strides[] = {0, 0};  // in bytes, of tiles and of steps
    uint32_t box[] = {1, 1, 1};   // elements
    const uint32_t element_strides[] = {1, 1, 1};
    // TODO(1): The strides and the box. (~5 lines)
    strides[0] = WARP_SIZE * WORDS * sizeof(int);
    strides[1] = tiles * strides[0];
    box[0] = WARP_SIZE * WORDS;
    box[1] = WARPS;
    box[2] = STEPS;
    // END TODO(1)
    CUtensorMap map;
    const CUresult result = tensor_map_encoder()(
        &map, CU_TENSOR_MAP_DATA_TYPE_INT32, 3, const_cast<int*>(q), dims, strides, box, element_strides,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) std::printf("cuTensorMapEncodeTiled refused the map: error %d\n", result);
    return map;
}

// global -> shared: a box of words ("cp.async.bulk.tensor": the innermost coordinate first). The barrier counts all of
// its bytes, also those of tiles past the last.
__device__ inline void load_words(void* to, const CUtensorMap* map, int tile, int step, uint64_t* bar) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
        "[%5];" ::"r"(smem_address(to)),
        "l"(map), "r"(0), "r"(tile), "r"(step), "r"(smem_address(bar))
        : "memory");
}

// word & mask | bits, in one instruction: bit (4 a + 2 b + c) of 0xea is the result for the bits a, b, c of the three.
__device__ __forceinline__ uint32_t and_or(uint32_t word, uint32_t mask, uint32_t bits) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
    return result;
}

// The weights u - 8 of a word's eight nibbles, as halves: pairs[i] has those of nibbles i and i + 4.
__device__ __forceinline__ void widen(half2 (&pairs)[4], uint32_t word) {
    const half2 sixteenth = __float2half2_rn(1.0f / 16.0f);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t shifted = word >> (4 * i);
        const uint32_t low = and_or(shifted, 0x000f000f, 0x64006400);
        const uint32_t high = and_or(shifted, 0x00f000f0, 0x64006400);
        pairs[i] = __hsub2(reinterpret_cast<const half2&>(low), __float2half2_rn(1024.0f + 8.0f));
        pairs[i + 1] = __hfma2(reinterpret_cast<const half2&>(high), sixteenth, __float2half2_rn(-64.0f - 8.0f));
    }
}

// This lane's part of operand a of the 16 columns that a word holds: rows of a are columns of y. scales has the scales
// of columns lane_id / 4 and lane_id / 4 + 8 of the 16.
__device__ __forceinline__ void dequantise(uint32_t (&W)[4], uint32_t word, const half (&scales)[2]) {
    half2 pairs[4];
    widen(pairs, word);
#pragma unroll
    for (int i = 0; i < 4; ++i) W[i] = 0;
    // TODO(2): The pairs are those of fragment B of mma.sync: two of a column, then two of the column eight further.
    //   Operand a has the first two k of both rows in registers 0 and 1, and the k eight further in 2 and 3. Each pair
    //   is multiplied by the scale of its column. (~5 lines)
#pragma unroll
    for (int p = 0; p < 4; ++p) {
        const half2 scaled = __hmul2(pairs[p], __half2half2(scales[p / 2]));
        W[p % 2 * 2 + p / 2] = reinterpret_cast<const uint32_t&>(scaled);
    }
    // END TODO(2)
}

// c += a @ b for a [64, 16] in registers and b [16, 16] in shared memory, whose k are adjacent. A lane has of a what
// mma.m16n8k16 wants of its warp's 16 rows ("Register Fragments for wgmma.mma_async.m64nNk16").
__device__ inline void wgmma_k16_rs(float (&c)[8], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7}, "
        "{%8, %9, %10, %11}, %12, 1, 1, 1, 0;"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// The same for b [16, 32].
__device__ inline void wgmma_k16_rs(float (&c)[16], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),
          "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// The same for b [16, 64].
__device__ inline void wgmma_k16_rs(float (&c)[32], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),
          "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),
          "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
          "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// Stores y where one split has all of K, else each split's sums in partial [splits, T, N]. ROWS: of y, 16, 32 or 64.
template <int ROWS>
__global__ void __launch_bounds__(THREADS, 2) w4a16_gemm_wgmma_f16_kernel(
    const __grid_constant__ CUtensorMap x_map,  // [T, K]
    const __grid_constant__ CUtensorMap q_map,  // [K / MMA_K, tiles, 128]
    const __grid_constant__ CUtensorMap s_map,  // [K / GROUP, N]
    half* __restrict__ y,                       // [T, N]
    float* __restrict__ partial, int T, int tiles, int groups, int splits) {
    alignas(PATTERN_BYTES) extern __shared__ unsigned char smem[];
    Ring<ROWS>& ring = *reinterpret_cast<Ring<ROWS>*>(smem);
    const int warpgroup = threadIdx.x / WARPGROUP;
    const int warp_id = threadIdx.x % WARPGROUP / WARP_SIZE;  // in its warpgroup
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int split = blockIdx.x % splits;
    const int first_tile = blockIdx.x / splits * WARPS;
    // The groups of this split: as even as they can be.
    const int begin = static_cast<int>(int64_t{groups} * split / splits);
    const int slices = static_cast<int>(int64_t{groups} * (split + 1) / splits) - begin;
    if (threadIdx.x == 0)
        for (int stage = 0; stage < STAGES<ROWS>; ++stage) mbarrier_init(&ring.full[stage], 1);
    __syncthreads();
    const auto load_slice = [&](int i) {
        Slice<ROWS>& slice = ring.slices[i % STAGES<ROWS>];
        uint64_t* full = &ring.full[i % STAGES<ROWS>];
        const int group = begin + i;
        // TODO(3): Have the slice's x, words and scales copied: two boxes of x, one of words, one row of scales.
        //   (~4 lines)
        expect(full, sizeof slice.x + sizeof slice.q + sizeof slice.s);
        for (int b = 0; b < BOXES; ++b) load_box(slice.x[b], &x_map, group * GROUP + b * BOX_K, 0, full);
        load_words(slice.q, &q_map, first_tile, group * STEPS, full);
        load_box(slice.s, &s_map, first_tile * TILE_N, group, full);
        // END TODO(3)
    };
    if (threadIdx.x == 0)
        for (int i = 0; i < min(AHEAD<ROWS>, slices); ++i) load_slice(i);
    float y_rmem[OWN_WORDS][ROWS / 2] = {};
    for (int i = 0; i < slices; ++i) {
        const Slice<ROWS>& slice = ring.slices[i % STAGES<ROWS>];
        wait(&ring.full[i % STAGES<ROWS>], i / STAGES<ROWS> % 2);
        half scales[OWN_WORDS][2];
#pragma unroll
        for (int n = 0; n < 2 * OWN_WORDS; ++n)
            scales[n / 2][n % 2] = slice.s[warp_id * TILE_N + warpgroup * OWN_WORDS * WORD_N + n * 8 + lane_id / 4];
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const uint2 packed = slice.q[step][warp_id][lane_id][warpgroup];
            const uint32_t word[OWN_WORDS] = {packed.x, packed.y};
            uint32_t W_rmem[OWN_WORDS][4];
#pragma unroll
            for (int j = 0; j < OWN_WORDS; ++j) dequantise(W_rmem[j], word[j], scales[j]);
            // TODO(4): Multiply the columns of each word with all rows of x, as one group of products. It runs on while
            //   the next step's weights are unpacked, into other registers. (~6 lines)
            const uint64_t x = descriptor(&slice.x[step * MMA_K / BOX_K][step * MMA_K % BOX_K]);
            wgmma_fence();
#pragma unroll
            for (int j = 0; j < OWN_WORDS; ++j) wgmma_k16_rs(y_rmem[j], W_rmem[j], x);
            wgmma_commit();
            wgmma_wait<1>();
            // END TODO(4)
        }
        // TODO(5): All warps are done with the slice before this one. Its slot gets the slice AHEAD of this one, if
        //   this split has it. (~2 lines)
        __syncthreads();
        if (threadIdx.x == 0 && i + AHEAD<ROWS> < slices) load_slice(i + AHEAD<ROWS>);
        // END TODO(5)
    }
    wgmma_wait<0>();
    const int tile = first_tile + warp_id;
    if (tile >= tiles) return;
    const int N = tiles * TILE_N;
#pragma unroll
    for (int j = 0; j < OWN_WORDS; ++j) {
#pragma unroll
        for (int e = 0; e < ROWS / 2; ++e) {
            int row = 0, col = 0;
            // TODO(6): The place of this lane's sum e in y. Rows of the product are columns of y. (~2 lines)
            row = e / 4 * 8 + lane_id % 4 * 2 + e % 2;
            col = tile * TILE_N + (warpgroup * OWN_WORDS + j) * WORD_N + e / 2 % 2 * 8 + lane_id / 4;
            // END TODO(6)
            if (row >= T) continue;
            const int64_t at = int64_t{row} * N + col;
            if (splits == 1) {
                y[at] = __float2half(y_rmem[j][e]);
            } else {
                partial[int64_t{split} * T * N + at] = y_rmem[j][e];
            }
        }
    }
}

// y = the sum of the splits, two columns per thread.
__global__ void __launch_bounds__(REDUCE_THREADS)
    add_splits_kernel(const float* __restrict__ partial, half* __restrict__ y, int64_t count, int splits) {
    const int64_t at = 2 * (int64_t{blockIdx.x} * REDUCE_THREADS + threadIdx.x);
    if (at >= count) return;
    float2 sum = {0.0f, 0.0f};
    for (int split = 0; split < splits; ++split) {
        const float2 part = *reinterpret_cast<const float2*>(&partial[split * count + at]);
        sum.x += part.x;
        sum.y += part.y;
    }
    *reinterpret_cast<half2*>(&y[at]) = __float22half2_rn(sum);
}

template <int ROWS>
void launch(
    const half* x, const int* q, const half* s, half* y, float* partial, int T, int tiles, int groups, int splits,
    cudaStream_t stream) {
    const auto kernel = w4a16_gemm_wgmma_f16_kernel<ROWS>;
    const CUtensorMap x_map = swizzled_map(x, T, groups * GROUP, ROWS);
    const CUtensorMap q_map = words_map(q, groups * STEPS, tiles);
    const CUtensorMap s_map = matrix_map(s, groups, tiles * TILE_N, 1, BLOCK_N);
    // More than 48 KB must be requested.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring<ROWS>));
    const int blocks = ((tiles - 1) / WARPS + 1) * splits;
    kernel<<<blocks, THREADS, sizeof(Ring<ROWS>), stream>>>(x_map, q_map, s_map, y, partial, T, tiles, groups, splits);
}

KATA_EXPORT void w4a16_gemm_wgmma_f16(
    const half* x, const int* q, const half* s, half* y, int T, int tiles, int groups, cudaStream_t stream) {
    const int blocks = (tiles - 1) / WARPS + 1;
    const int splits = std::max(1, std::min(SLOTS / blocks, groups / MIN_GROUPS));
    const int64_t count = int64_t{T} * tiles * TILE_N;
    float* partial = nullptr;
    if (splits > 1) cudaMallocAsync(&partial, splits * count * sizeof(float), stream);
    if (T <= 16) {
        launch<16>(x, q, s, y, partial, T, tiles, groups, splits, stream);
    } else if (T <= 32) {
        launch<32>(x, q, s, y, partial, T, tiles, groups, splits, stream);
    } else {
        launch<64>(x, q, s, y, partial, T, tiles, groups, splits, stream);
    }
    if (splits > 1) {
        const auto reduce_blocks = static_cast<unsigned>((count / 2 - 1) / REDUCE_THREADS + 1);
        add_splits_kernel<<<reduce_blocks, REDUCE_THREADS, 0, stream>>>(partial, y, count, splits);
        cudaFreeAsync(partial, stream);
    }
}
