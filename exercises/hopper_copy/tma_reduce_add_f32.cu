// tma_reduce_add_f32: y[m, n] = sum of x[s, m, n] over all s, partial sums added in the L2 cache by the copy engine
//
// Shapes     x: [S, M, N], y: [M, N] f32, contiguous, 16-byte aligned bases, any S and M >= 1, N a multiple of 4
// Technique  a box of 16 slices of 4 x 128 elements per block, by a map of three dimensions; threads add the slices up;
//            the sum goes to y by a reducing copy. The order of the additions to y changes from call to call
// New        over tma_tile_scale_f16: blocks share a box of y. The copy out adds instead of overwriting
// Bound      memory bandwidth: reading x
#include "kata.cuh"
#include "kata_tma.cuh"
#include <cstdint>
#include <cstdio>
#include <cuda.h>

// From kata_tma.cuh:
using kata::tensor_map_encoder, kata::smem_address, kata::mbarrier_init, kata::expect, kata::wait, kata::commit_stores,
    kata::wait_read, kata::fence_proxy;

constexpr int BOX_SLICES = 16;
constexpr int BOX_ROWS = 4;
constexpr int BOX_COLS = 128;
constexpr int BOX_BYTES = BOX_SLICES * BOX_ROWS * BOX_COLS * sizeof(float);
constexpr int VEC = 4;                           // floats in 16 bytes
constexpr int VECS = BOX_ROWS * BOX_COLS / VEC;  // of a slice
constexpr int THREADS = VECS;

// A tensor map of contiguous slices of row-major matrices, one slice in the case of a matrix.
inline CUtensorMap slices_map(
    const float* base, int rank, int slices, int rows, int cols, int box_slices, int box_rows, int box_cols) {
    // The innermost dimension first. Strides are in bytes, and the innermost has none: its elements are adjacent.
    const uint64_t dims[] = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows), static_cast<uint64_t>(slices)};
    const uint64_t strides[] = {cols * sizeof(float), cols * sizeof(float) * rows};
    const uint32_t box[] = {
        static_cast<uint32_t>(box_cols), static_cast<uint32_t>(box_rows), static_cast<uint32_t>(box_slices)};
    const uint32_t element_strides[] = {1, 1, 1};
    CUtensorMap map;
    const CUresult result = tensor_map_encoder()(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, const_cast<float*>(base), dims, strides, box, element_strides,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) std::printf("cuTensorMapEncodeTiled refused the map: error %d\n", result);
    return map;
}

// global -> shared: a box of the map's tensor, its first element at (slice, row, col). The barrier counts all bytes of
// the box, also those outside of the tensor, which become 0.
__device__ inline void load_box(void* to, const CUtensorMap* map, int col, int row, int slice, uint64_t* bar) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
        "[%5];" ::"r"(smem_address(to)),
        "l"(map), "r"(col), "r"(row), "r"(slice), "r"(smem_address(bar))
        : "memory");
}

// shared -> global: adds the part of the box that is inside of the tensor to what is there, each element atomically
// (PTX ISA, "cp.reduce.async.bulk.tensor"). It belongs to the bulk group that this thread commits next.
__device__ inline void add_box(const CUtensorMap* map, int col, int row, const void* from) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
        "r"(col), "r"(row), "r"(smem_address(from))
        : "memory");
}

__global__ void __launch_bounds__(THREADS) tma_reduce_add_f32_kernel(
    const __grid_constant__ CUtensorMap x_map,  // [S, M, N]
    const __grid_constant__ CUtensorMap y_map,  // [M, N]
    int boxes_m, int boxes_n) {
    alignas(128) __shared__ float4 x_smem[BOX_SLICES][VECS];
    alignas(128) __shared__ float4 y_smem[VECS];
    __shared__ uint64_t full;
    const int col = blockIdx.x % boxes_n * BOX_COLS;
    const int row = blockIdx.x / boxes_n % boxes_m * BOX_ROWS;
    const int slice = blockIdx.x / boxes_n / boxes_m * BOX_SLICES;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        expect(&full, BOX_BYTES);
        load_box(x_smem, &x_map, col, row, slice, &full);
    }
    __syncthreads();
    wait(&full, 0);
    // Slices past the last one are 0.
    float4 sum = x_smem[0][threadIdx.x];
#pragma unroll
    for (int s = 1; s < BOX_SLICES; ++s) {
        const float4 x4 = x_smem[s][threadIdx.x];
        sum.x += x4.x, sum.y += x4.y, sum.z += x4.z, sum.w += x4.w;
    }
    y_smem[threadIdx.x] = sum;
    // TODO(1): Add the block's sums to the box at (row, col) of y. Other blocks add to it at the same time. (~7 lines)
    // END TODO(1)
}

KATA_EXPORT void tma_reduce_add_f32(const float* x, float* y, int S, int M, int N, cudaStream_t stream) {
    const int boxes_m = (M - 1) / BOX_ROWS + 1;
    const int boxes_n = (N - 1) / BOX_COLS + 1;
    const int boxes = boxes_m * boxes_n * ((S - 1) / BOX_SLICES + 1);
    const CUtensorMap x_map = slices_map(x, 3, S, M, N, BOX_SLICES, BOX_ROWS, BOX_COLS);
    const CUtensorMap y_map = slices_map(y, 2, 1, M, N, 1, BOX_ROWS, BOX_COLS);
    // TODO(2): Every element of y begins as the neutral element of the sum, before any block adds to it. (~1 line)
    // END TODO(2)
    tma_reduce_add_f32_kernel<<<boxes, THREADS, 0, stream>>>(x_map, y_map, boxes_m, boxes_n);
}
