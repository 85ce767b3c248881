// tma_transpose_swizzle_f32: y = x transposed, by tensor copies that swizzle, without bank conflicts
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, M and N multiples of 4
// Technique  tensor maps with the 128-byte swizzle; 2 x 2 boxes of 32 x 32 per block; a thread transposes 4 x 4 floats
//            in registers
// New        over tma_transpose_f32: the copy engine permutes the 16-byte chunks of each row. Threads must do the same
// Bound      memory bandwidth
#include "kata.cuh"
#include <cstdint>
#include <cstdio>
#include <cuda.h>

constexpr int BOX = 32;   // rows and columns of a box: a row has the 128 bytes of the swizzle's span
constexpr int TILE = 64;  // rows and columns of a tile
constexpr int SIDE = TILE / BOX;
constexpr int BOXES = SIDE * SIDE;  // of a tile, in the order of rows of x
constexpr int VEC = 4;              // floats in a chunk of 16 bytes
constexpr int CHUNKS = BOX / VEC;   // of a row of a box
constexpr int BOX_BYTES = BOX * BOX * sizeof(float);
constexpr int BOX_THREADS = CHUNKS * CHUNKS;  // each has 4 x 4 elements
constexpr int THREADS = BOXES * BOX_THREADS;

// The driver's function cuTensorMapEncodeTiled. The runtime looks it up, so nothing links the driver.
inline decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &status);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

// A tensor map of a row-major matrix: what one copy moves is a box of box_rows x box_cols elements.
inline CUtensorMap matrix_map(
    const float* matrix, int rows, int cols, int box_rows, int box_cols, CUtensorMapSwizzle swizzle) {
    // The innermost dimension first. Strides are in bytes, and the innermost has none: its elements are adjacent.
    const uint64_t dims[] = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)};
    const uint64_t strides[] = {cols * sizeof(float)};
    const uint32_t box[] = {static_cast<uint32_t>(box_cols), static_cast<uint32_t>(box_rows)};
    const uint32_t element_strides[] = {1, 1};
    CUtensorMap map;
    const CUresult result = tensor_map_encoder()(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, const_cast<float*>(matrix), dims, strides, box, element_strides,
        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
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

// The place of a row's chunk of 16 bytes in a box that the copy engine swizzles. Bits 4 to 6 of an address become their
// xor with bits 7 to 9 (PTX ISA, "Swizzling modes"). Boxes begin at multiples of 1024 bytes.
__device__ inline int place_of(int row, int chunk) {
    int place = chunk;
    // TODO(1): Which bits of an address count the chunks of a row, and which count the rows? (~1 line)
    // END TODO(1)
    return place;
}

__global__ void __launch_bounds__(THREADS) tma_transpose_swizzle_f32_kernel(
    const __grid_constant__ CUtensorMap x_map,  // [M, N]
    const __grid_constant__ CUtensorMap y_map,  // [N, M]
    int tiles_m) {
    // The pattern of the swizzle repeats every 1024 bytes of addresses. So each box begins at a multiple of that.
    __shared__ alignas(1024) float4 x_smem[BOXES][BOX][CHUNKS];
    __shared__ alignas(1024) float4 y_smem[BOXES][BOX][CHUNKS];
    __shared__ uint64_t full;
    const int row = blockIdx.x % tiles_m * TILE;  // of x
    const int col = blockIdx.x / tiles_m * TILE;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        expect(&full, BOXES * BOX_BYTES);
        for (int b = 0; b < BOXES; ++b) load_box(x_smem[b], &x_map, col + b % SIDE * BOX, row + b / SIDE * BOX, &full);
    }
    __syncthreads();
    wait(&full, 0);
    // This thread moves rows q * VEC + 0..3 of chunk c of box b. Lanes go along a diagonal: eight lanes together read
    // eight chunks in different banks, and so do the writes, where q and c have swapped.
    const int b = threadIdx.x / BOX_THREADS;
    const int q = threadIdx.x % CHUNKS;
    const int c = threadIdx.x % BOX_THREADS / CHUNKS ^ q;
    float x4[VEC][VEC];
    // TODO(2): Read the thread's four chunks from where the swizzle has put them. Write them transposed, to where the
    //   copy engine looks for them. (~10 lines)
    // END TODO(2)
    fence_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int s = 0; s < BOXES; ++s) store_box(&y_map, row + s / SIDE * BOX, col + s % SIDE * BOX, y_smem[s]);
        commit_stores();
        wait_read<0>();
    }
}

KATA_EXPORT void tma_transpose_swizzle_f32(const float* x, float* y, int M, int N, cudaStream_t stream) {
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles_n = (N - 1) / TILE + 1;
    const CUtensorMap x_map = matrix_map(x, M, N, BOX, BOX, CU_TENSOR_MAP_SWIZZLE_128B);
    const CUtensorMap y_map = matrix_map(y, N, M, BOX, BOX, CU_TENSOR_MAP_SWIZZLE_128B);
    tma_transpose_swizzle_f32_kernel<<<tiles_m * tiles_n, THREADS, 0, stream>>>(x_map, y_map, tiles_m);
}
