// tma_tile_scale_f16: y = a * x for a matrix, computed in the tile between two tensor copies
//
// Shapes     x, y: [M, N] f16, row-major, contiguous, 16-byte aligned bases, any M >= 1, N a multiple of 8, a float
// Technique  a box of 32 x 256 elements per block, by tensor maps; 128 threads multiply it in place, 16 bytes at a time
// New        over tma_tile_copy_f16: threads write what the copy engine reads. That takes a proxy fence and a barrier
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <cstdio>
#include <cuda.h>
#include <cuda_fp16.h>

constexpr int BOX_ROWS = 32;
constexpr int BOX_COLS = 256;
constexpr int BOX = BOX_ROWS * BOX_COLS;
constexpr int BOX_BYTES = BOX * sizeof(half);
constexpr int THREADS = 128;
constexpr int PACK = 8;  // halves in 16 bytes

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
    dims[0] = cols, dims[1] = rows;
    strides[0] = cols * sizeof(half);
    box[0] = box_cols, box[1] = box_rows;
    const uint32_t element_strides[] = {1, 1};
    CUtensorMap map;
    const CUresult result = tensor_map_encoder()(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<half*>(matrix), dims, strides, box, element_strides,
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

// a * x, each product rounded once to f16.
__device__ inline void scale_pack(__half2 (&pack)[PACK / 2], float a) {
#pragma unroll
    for (int i = 0; i < PACK / 2; ++i) {
        const float2 x = __half22float2(pack[i]);
        pack[i] = __floats2half2_rn(a * x.x, a * x.y);
    }
}

__global__ void __launch_bounds__(THREADS) tma_tile_scale_f16_kernel(
    const __grid_constant__ CUtensorMap x_map,  // [M, N]
    const __grid_constant__ CUtensorMap y_map,  // [M, N]
    float a, int boxes_n) {
    __shared__ alignas(128) half tile_smem[BOX];
    __shared__ uint64_t full;
    const int row = blockIdx.x / boxes_n * BOX_ROWS;
    const int col = blockIdx.x % boxes_n * BOX_COLS;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        expect(&full, BOX_BYTES);
        load_box(tile_smem, &x_map, col, row, &full);
    }
    // TODO(1): No thread waits at the barrier before it is initialised, or reads the tile before it is there.
    //   (~2 lines)
    __syncthreads();
    wait(&full, 0);
    // END TODO(1)
    for (int i = threadIdx.x * PACK; i < BOX; i += THREADS * PACK) {
        __half2 pack[PACK / 2];
        *reinterpret_cast<float4*>(pack) = *reinterpret_cast<const float4*>(&tile_smem[i]);
        scale_pack(pack, a);
        *reinterpret_cast<float4*>(&tile_smem[i]) = *reinterpret_cast<const float4*>(pack);
    }
    // TODO(2): Make what every thread has written visible to the copy engine. Only then may one thread store the box.
    //   The tile must live until it has been read. (~7 lines)
    // The fence is for the writes of the thread that executes it. So each writer fences, and the barrier comes after.
    fence_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
        store_box(&y_map, col, row, tile_smem);
        commit_stores();
        wait_read<0>();
    }
    // END TODO(2)
}

KATA_EXPORT void tma_tile_scale_f16(const half* x, half* y, int M, int N, float a, cudaStream_t stream) {
    const int boxes_m = (M - 1) / BOX_ROWS + 1;
    const int boxes_n = (N - 1) / BOX_COLS + 1;
    const CUtensorMap x_map = matrix_map(x, M, N, BOX_ROWS, BOX_COLS);
    const CUtensorMap y_map = matrix_map(y, M, N, BOX_ROWS, BOX_COLS);
    tma_tile_scale_f16_kernel<<<boxes_m * boxes_n, THREADS, 0, stream>>>(x_map, y_map, a, boxes_n);
}
