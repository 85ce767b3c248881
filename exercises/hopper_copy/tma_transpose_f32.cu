// tma_transpose_f32: y = x transposed, tensor copies in and out, transposed in shared memory between them
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, M and N multiples of 4
// Technique  a box of 32 x 32 of x per block into one tile, its columns into the rows of another, which is a box of y
// New        over tma_tile_scale_f16: the box of y is another than the box of x. Shared memory has bank conflicts
// Bound      wavefronts of shared memory
#include "kata.cuh"
#include <cstdint>
#include <cstdio>
#include <cuda.h>

constexpr int TILE = 32;  // rows and columns of a box
constexpr int TILE_BYTES = TILE * TILE * sizeof(float);
constexpr int ROWS = 2;  // of the tile that the block moves at a time
constexpr int THREADS = TILE * ROWS;

// The driver's function cuTensorMapEncodeTiled. The runtime looks it up, so nothing links the driver.
inline decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &status);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

// A tensor map of a row-major matrix: what one copy moves is a box of box_rows x box_cols elements.
inline CUtensorMap matrix_map(const float* matrix, int rows, int cols, int box_rows, int box_cols) {
    // The innermost dimension first. Strides are in bytes, and the innermost has none: its elements are adjacent.
    const uint64_t dims[] = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)};
    const uint64_t strides[] = {cols * sizeof(float)};
    const uint32_t box[] = {static_cast<uint32_t>(box_cols), static_cast<uint32_t>(box_rows)};
    const uint32_t element_strides[] = {1, 1};
    CUtensorMap map;
    const CUresult result = tensor_map_encoder()(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, const_cast<float*>(matrix), dims, strides, box, element_strides,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) std::printf("cuTensorMapEncodeTiled refused the map: error %d\n", result);
    return map;
}

// The address of a place in shared memory as PTX instructions take it: 32 bits.
__device__ inline uint32_t smem_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// A phase of the barrier ends when count arrivals have come and all bytes that they announced. The fence makes the
// barrier visible to the copy engine (PTX ISA, "mbarrier.init", "membar / fence").
__device__ inline void mbarrier_init(uint64_t* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(bar)), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival, which announces bytes of copies (PTX ISA, "mbarrier.arrive", .expect_tx).
__device__ inline void expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(bar)), "r"(bytes)
                 : "memory");
}

// Waits until the phase of this parity has ended: 0 for the first phase, 1 for the second, 0 for the third.
__device__ inline void wait(uint64_t* bar, uint32_t parity) {
    asm volatile(
        "{\n .reg .pred p;\nAGAIN_%=:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @!p bra AGAIN_%=;\n}" ::
            "r"(smem_address(bar)),
        "r"(parity)
        : "memory");
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

// Makes a bulk group of all stores that this thread has issued since the last commit.
__device__ inline void commit_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until the copy engine has read the source of all but the LEFT newest bulk groups of this thread.
template <int LEFT>
__device__ inline void wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

// Makes what this thread has written to shared memory visible to the copy engine (PTX ISA, "Async proxy").
__device__ inline void fence_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__global__ void __launch_bounds__(THREADS) tma_transpose_f32_kernel(
    const __grid_constant__ CUtensorMap x_map,  // [M, N]
    const __grid_constant__ CUtensorMap y_map,  // [N, M]
    int tiles_m) {
    __shared__ alignas(128) float x_smem[TILE][TILE];
    __shared__ alignas(128) float y_smem[TILE][TILE];
    __shared__ uint64_t full;
    // Blocks that start one after the other write adjacent pieces of the same rows of y.
    const int row = blockIdx.x % tiles_m * TILE;  // of x
    const int col = blockIdx.x / tiles_m * TILE;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        expect(&full, TILE_BYTES);
        load_box(x_smem, &x_map, col, row, &full);
    }
    __syncthreads();
    wait(&full, 0);
    // TODO(1): Transpose x_smem into y_smem. A warp writes a row of y_smem at a time, 32 banks. (~4 lines)
    // END TODO(1)
    fence_proxy();
    __syncthreads();
    // TODO(2): Store the tile to its place in y, where rows and columns have swapped. (~5 lines)
    // END TODO(2)
}

KATA_EXPORT void tma_transpose_f32(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles_n = (N - 1) / TILE + 1;
    const CUtensorMap x_map = matrix_map(x, M, N, TILE, TILE);
    const CUtensorMap y_map = matrix_map(y, N, M, TILE, TILE);
    tma_transpose_f32_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(x_map, y_map, tiles_m);
}
