// tma_halo_stencil_f32: y[i, j] = x[i-1, j] + x[i+1, j] + x[i, j-1] + x[i, j+1] - 4 x[i, j], 0 outside of x
//
// Shapes     x, y: [M, N] f32, row-major, contiguous, 16-byte aligned bases, any M >= 1, N a multiple of 4
// Technique  a box of x with a halo per block, which begins outside of x at the upper and left edge; a thread goes down
//            a column with three values in registers; the result as a box of y
// New        over tma_tile_scale_f16: the copy engine fills what is outside of x with zeros. No thread asks for an edge
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <cstdio>
#include <cuda.h>

constexpr int TILE_ROWS = 32;  // of y, per block
constexpr int TILE_COLS = 128;
constexpr int HALO_ROWS = 1;  // above and below
constexpr int HALO_COLS = 4;  // left and right: one is needed, but a box must begin on 16 bytes in its row
constexpr int BOX_ROWS = TILE_ROWS + 2 * HALO_ROWS;
constexpr int BOX_COLS = TILE_COLS + 2 * HALO_COLS;
constexpr int BOX_BYTES = BOX_ROWS * BOX_COLS * sizeof(float);
constexpr int THREADS = 256;
constexpr int THREAD_ROWS = TILE_ROWS * TILE_COLS / THREADS;  // of one column, per thread

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

__global__ void __launch_bounds__(THREADS) tma_halo_stencil_f32_kernel(
    const __grid_constant__ CUtensorMap x_map,  // [M, N]
    const __grid_constant__ CUtensorMap y_map,  // [M, N]
    int tiles_n) {
    __shared__ alignas(128) float x_smem[BOX_ROWS][BOX_COLS];
    __shared__ alignas(128) float y_smem[TILE_ROWS][TILE_COLS];
    __shared__ uint64_t full;
    const int row = blockIdx.x / tiles_n * TILE_ROWS;
    const int col = blockIdx.x % tiles_n * TILE_COLS;
    // TODO(1): Load the box whose element (HALO_ROWS, HALO_COLS) is x[row, col]. Every thread waits for it. (~7 lines)
    // END TODO(1)
    // TODO(2): Write this thread's THREAD_ROWS elements of one column of y_smem. Adjacent lanes have adjacent columns.
    //   The thread reads each element of its own column of x_smem once. (~11 lines)
    // END TODO(2)
    fence_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
        store_box(&y_map, col, row, y_smem);
        commit_stores();
        wait_read<0>();
    }
}

KATA_EXPORT void tma_halo_stencil_f32(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int tiles_m = (M - 1) / TILE_ROWS + 1;
    const int tiles_n = (N - 1) / TILE_COLS + 1;
    const CUtensorMap x_map = matrix_map(x, M, N, BOX_ROWS, BOX_COLS);
    const CUtensorMap y_map = matrix_map(y, M, N, TILE_ROWS, TILE_COLS);
    tma_halo_stencil_f32_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(x_map, y_map, tiles_n);
}
