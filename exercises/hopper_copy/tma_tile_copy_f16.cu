// tma_tile_copy_f16: y = x for a matrix, box by box through shared memory, by tensor maps
//
// Shapes     x, y: [M, N] f16, row-major, contiguous, 16-byte aligned bases, any M >= 1, N a multiple of 8
// Technique  a tensor map of x and one of y, made on the host and passed as kernel parameters; one copy of a box of
//            32 x 256 elements in, one out, by one thread
// New        over bulk_copy_f32: the map knows shape and strides. The kernel computes no address and no edge
// Bound      memory bandwidth
#include "kata.cuh"
#include "kata_tma.cuh"
#include <cstdint>
#include <cstdio>
#include <cuda.h>
#include <cuda_fp16.h>

// From kata_tma.cuh:
using kata::smem_address, kata::mbarrier_init, kata::expect, kata::wait, kata::commit_stores, kata::wait_read;

constexpr int BOX_ROWS = 32;
constexpr int BOX_COLS = 256;  // at most 256 elements along each dimension
constexpr int BOX_BYTES = BOX_ROWS * BOX_COLS * sizeof(half);
constexpr int THREADS = 32;

// The driver's function cuTensorMapEncodeTiled. The runtime looks it up, so nothing links the driver.
inline decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &status);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

// A tensor map of a row-major matrix: what one copy moves is a box of box_rows x box_cols elements.
inline CUtensorMap matrix_map(const half* matrix, int rows, int cols, int box_rows, int box_cols) {
    uint64_t dims[2] = {};     // the innermost first
    uint64_t strides[1] = {};  // in bytes; the innermost dimension has none, because its elements are adjacent
    uint32_t box[2] = {};
    // TODO(1): Set the sizes of the matrix, the distance of its rows and the sizes of a box. (~3 lines)
    // END TODO(1)
    const uint32_t element_strides[] = {1, 1};
    CUtensorMap map;
    const CUresult result = tensor_map_encoder()(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<half*>(matrix), dims, strides, box, element_strides,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) std::printf("cuTensorMapEncodeTiled refused the map: error %d\n", result);
    return map;
}

// global -> shared: a box of the map's tensor, its first element at (row, col). The barrier counts all bytes of the
// box, also those outside of the tensor, which become 0 (PTX ISA, "cp.async.bulk.tensor": innermost coordinate first).
__device__ inline void load_box(void* to, const CUtensorMap* map, int col, int row, uint64_t* bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(smem_address(to)),
        "l"(map), "r"(col), "r"(row), "r"(smem_address(bar))
        : "memory");
}

// shared -> global: the part of the box that is inside of the tensor. It belongs to the bulk group that this thread
// commits next.
__device__ inline void store_box(const CUtensorMap* map, int col, int row, const void* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                 "r"(col), "r"(row), "r"(smem_address(from))
                 : "memory");
}

// The maps are parameters: a map in a local copy has no address that the copy engine can read.
__global__ void __launch_bounds__(THREADS) tma_tile_copy_f16_kernel(
    const __grid_constant__ CUtensorMap x_map,  // [M, N]
    const __grid_constant__ CUtensorMap y_map,  // [M, N]
    int boxes_n) {
    alignas(128) __shared__ half tile_smem[BOX_ROWS * BOX_COLS];
    __shared__ uint64_t full;
    const int row = blockIdx.x / boxes_n * BOX_ROWS;
    const int col = blockIdx.x % boxes_n * BOX_COLS;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        // TODO(2): Move the box at (row, col) of x to the same place of y. Boxes at the edges hang over, and nothing
        //   here treats them differently. Mind how many bytes the barrier counts. (~6 lines)
        // END TODO(2)
    }
}

KATA_EXPORT void tma_tile_copy_f16(const half* x, half* y, int M, int N, cudaStream_t stream) {
    const int boxes_m = (M - 1) / BOX_ROWS + 1;
    const int boxes_n = (N - 1) / BOX_COLS + 1;
    const CUtensorMap x_map = matrix_map(x, M, N, BOX_ROWS, BOX_COLS);
    const CUtensorMap y_map = matrix_map(y, M, N, BOX_ROWS, BOX_COLS);
    tma_tile_copy_f16_kernel<<<boxes_m * boxes_n, THREADS, 0, stream>>>(x_map, y_map, boxes_n);
}
