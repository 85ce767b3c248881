// hgemm_mma_stages_block_swizzle_tn_cute: C = A @ B^T with CuTe, layouts and atoms for indices and PTX
//
// Shapes     A: [M, K] f16, B: [N, K] f16, C: [M, N] f16, row-major, 16-byte aligned bases, N and K multiples of 8
// Technique  tiles of 256 x 128 x 64; cp.async into a ring of three swizzled stages, ldmatrix, mma.sync with two
//            alternating sets of fragments; C is stored through shared memory; concurrent blocks share tiles of A and B
// New        over hgemm_mma_m16n8k16_mma2x4_warp4x8x4_stages_dsmem_tn_swizzle_x4_block_swizzle: types (TiledCopy and
//            TiledMMA) say which thread moves what, and the loops are copy and gemm over partitions
// Bound      Tensor Cores
#include "kata.cuh"
#include <cuda_fp16.h>
#include <cute/tensor.hpp>

using namespace cute;

constexpr int BLOCK_M = 256, BLOCK_N = 128, BLOCK_K = 64;
constexpr int STAGES = 3;
constexpr int WARPS_M = 4, WARPS_N = 2;
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int MMA_K = 16;
constexpr int STEPS = BLOCK_K / MMA_K;  // of k per tile
constexpr int GROUP_M = 8;              // rows of tiles per group, walked column by column
constexpr int VECTOR = 8;               // halves in 16 bytes
static_assert(BLOCK_K == 64, "a row of a stage fills all 32 banks once, as the swizzle assumes");
static_assert(STEPS >= 2, "the last step of a tile is not its first");

using Element = cute::half_t;  // the same 16 bits as half

// Eight rows of 64 halves. Without the swizzle, the 16 bytes that ldmatrix reads from each of eight rows would be in
// the same banks.
using SharedAtom = decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape<_8, _64>, Stride<_64, _1>>{}));
using SharedA = decltype(tile_to_shape(SharedAtom{}, Shape<Int<BLOCK_M>, Int<BLOCK_K>, Int<STAGES>>{}));
using SharedB = decltype(tile_to_shape(SharedAtom{}, Shape<Int<BLOCK_N>, Int<BLOCK_K>, Int<STAGES>>{}));
using SharedC = decltype(tile_to_shape(SharedAtom{}, Shape<Int<BLOCK_M>, Int<BLOCK_N>>{}));

// 4 x 2 warps, each on 16 x 16 of C at a time: two adjacent atoms of 16 x 8, whose B one ldmatrix.x4 loads.
using Mma = decltype(make_tiled_mma(
    SM80_16x8x16_F32F16F16F32_TN{}, Layout<Shape<Int<WARPS_M>, Int<WARPS_N>>>{},
    Tile<Int<WARPS_M * 16>, Int<WARPS_N * 16>, Int<MMA_K>>{}));

// Eight threads copy a row of a tile, 16 bytes each: whole sectors. ZFILL writes zeros where there is nothing to read.
constexpr int ROW_THREADS = BLOCK_K / VECTOR;
using GlobalToShared = decltype(make_tiled_copy(
    Copy_Atom<SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint128_t>, Element>{},
    Layout<Shape<Int<THREADS / ROW_THREADS>, Int<ROW_THREADS>>, Stride<Int<ROW_THREADS>, _1>>{},
    Layout<Shape<_1, Int<VECTOR>>>{}));

// Sixteen threads copy a row of the tile of C: 256 bytes.
constexpr int C_THREADS = BLOCK_N / VECTOR;
using SharedToGlobal = decltype(make_tiled_copy(
    Copy_Atom<UniversalCopy<uint128_t>, Element>{},
    Layout<Shape<Int<THREADS / C_THREADS>, Int<C_THREADS>>, Stride<Int<C_THREADS>, _1>>{},
    Layout<Shape<_1, Int<VECTOR>>>{}));

constexpr int SMEM_BYTES = sizeof(Element) * (cosize_v<SharedA> + cosize_v<SharedB>);
static_assert(cosize_v<SharedC> <= cosize_v<SharedA> + cosize_v<SharedB>, "the tile of C fits where the stages are");
static_assert(SMEM_BYTES <= 163 * 1024, "what a block may have of an SM of sm_80");

// Consecutive blocks take the tiles of GROUP_M rows column by column. Concurrent blocks then share few rows and
// columns, and L2 holds these.
__device__ inline int2 tile_of_block(int tiles_m, int tiles_n) {
    const int block = blockIdx.x, blocks_of_group = GROUP_M * tiles_n;
    const int first_row = block / blocks_of_group * GROUP_M;
    const int rows = min(tiles_m - first_row, GROUP_M);  // the last group may have fewer
    const int place = block % blocks_of_group;
    return {first_row + place % rows, place / rows};
}

// A template, although T is Element: nvcc then skips CuTe's templates in the host pass.
template <class T>
__global__ void __launch_bounds__(THREADS) hgemm_mma_stages_block_swizzle_tn_cute_kernel(
    const T* __restrict__ A, const T* __restrict__ B, T* __restrict__ C, int M, int N, int K) {
    extern __shared__ __align__(128) unsigned char shared[];
    const int2 tile = tile_of_block(ceil_div(M, Int<BLOCK_M>{}), ceil_div(N, Int<BLOCK_N>{}));
    const auto C_left = make_coord(M - tile.x * BLOCK_M, N - tile.y * BLOCK_N);  // rows and columns from this tile on
    const int tiles_k = ceil_div(K, Int<BLOCK_K>{});

    // 64-bit strides: M * K may not fit int.
    const Tensor A_all = make_tensor(make_gmem_ptr(A), make_shape(M, K), make_stride(int64_t(K), _1{}));
    const Tensor B_all = make_tensor(make_gmem_ptr(B), make_shape(N, K), make_stride(int64_t(K), _1{}));
    Tensor C_all = make_tensor(make_gmem_ptr(C), make_shape(M, N), make_stride(int64_t(N), _1{}));
    const Tensor A_gmem =
        local_tile(A_all, Shape<Int<BLOCK_M>, Int<BLOCK_K>>{}, make_coord(tile.x, _));  // [M, K, tile]
    const Tensor B_gmem =
        local_tile(B_all, Shape<Int<BLOCK_N>, Int<BLOCK_K>>{}, make_coord(tile.y, _));  // [N, K, tile]
    Tensor C_gmem = local_tile(C_all, Shape<Int<BLOCK_M>, Int<BLOCK_N>>{}, make_coord(tile.x, tile.y));

    // C overwrites the stages after their last use.
    T* const smem = reinterpret_cast<T*>(shared);
    Tensor A_smem = make_tensor(make_smem_ptr(smem), SharedA{});                      // [M, K, stage]
    Tensor B_smem = make_tensor(make_smem_ptr(smem + cosize_v<SharedA>), SharedB{});  // [N, K, stage]
    Tensor C_smem = make_tensor(make_smem_ptr(smem), SharedC{});

    Mma mma;
    Tensor C_rmem = partition_fragment_C(mma, Shape<Int<BLOCK_M>, Int<BLOCK_N>>{});
    clear(C_rmem);

    // This thread's part of each tile, [halves of a copy, rows, 1, tile or stage], and its coordinates in a tile.
    const auto thread_in = GlobalToShared{}.get_slice(threadIdx.x);
    const Tensor A_from = thread_in.partition_S(A_gmem);
    const Tensor B_from = thread_in.partition_S(B_gmem);
    Tensor A_to = thread_in.partition_D(A_smem);
    Tensor B_to = thread_in.partition_D(B_smem);
    const Tensor A_place = thread_in.partition_S(make_identity_tensor(shape(A_gmem(_, _, 0))));
    const Tensor B_place = thread_in.partition_S(make_identity_tensor(shape(B_gmem(_, _, 0))));

    // A tile past the last one is all zeros, but still a group: every iteration then has the same number of pending
    // groups.
    const auto load_stage = [&](int tile_k, int stage) {
        const int k_left = tile_k < tiles_k ? K - tile_k * BLOCK_K : 0;
        const auto A_left = make_coord(get<0>(C_left), k_left), B_left = make_coord(get<1>(C_left), k_left);
        // TODO(1): start to copy this thread's part of a tile of A and of B, with zeros for elements outside the
        //   matrices (~8 lines)
        // END TODO(1)
        cp_async_fence();
    };
    for (int stage = 0; stage < STAGES - 1; ++stage) load_stage(stage, stage);

    // TODO(2): Make this thread's fragments of A and B for all steps of a tile, and ldmatrix copies into them: fetch
    //   copies the fragments of one step from one stage. (~13 lines)
    // END TODO(2)
    // TODO(3): C_rmem becomes the tile's product. Each step fetches the fragments of the next step and multiplies its
    //   own. Once per tile, wait for the next tile and for all warps, and start to refill the stage that no warp reads
    //   any more. (~20 lines)
    // END TODO(3)

    // C overwrites the stages: no copy may land there later, and no warp may still read them.
    cp_async_wait<0>();
    __syncthreads();
    // TODO(4): registers -> shared: the tile of C, as halves (~6 lines)
    // END TODO(4)
    __syncthreads();  // a thread stores what others wrote
    // TODO(5): store each 16 bytes of the tile that lie inside C, and no others (~8 lines)
    // END TODO(5)
}

KATA_EXPORT void hgemm_mma_stages_block_swizzle_tn_cute(
    const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    if (M == 0 || N == 0) return;
    const auto kernel = hgemm_mma_stages_block_swizzle_tn_cute_kernel<Element>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES);
    const int blocks = ceil_div(M, Int<BLOCK_M>{}) * ceil_div(N, Int<BLOCK_N>{});
    kernel<<<blocks, THREADS, SMEM_BYTES, stream>>>(
        reinterpret_cast<const Element*>(A), reinterpret_cast<const Element*>(B), reinterpret_cast<Element*>(C), M, N,
        K);
}
