// tma_transpose_ring_f32: y = x transposed, with several tiles of each block in flight
//
// Shapes     x: [M, N], y: [N, M] f32, row-major, contiguous, 16-byte aligned bases, M and N multiples of 4
// Technique  as many blocks as fit on the card, each with every gridDim.x-th tile; per block a ring of three tiles of x
//            and one of two tiles of y, swizzled boxes, 4 x 4 elements per thread in registers
// New        over tma_transpose_swizzle_f32: copies in, the transposition, and copies out go on at the same time
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
constexpr int STAGES = 3;         // tiles of x in shared memory
constexpr int OUTS = 2;           // tiles of y there
constexpr int BLOCKS_PER_SM = 2;  // 80 KB of shared memory each

struct Ring {
    alignas(1024) float4 x[STAGES][BOXES][BOX][CHUNKS];
    alignas(1024) float4 y[OUTS][BOXES][BOX][CHUNKS];
    uint64_t full[STAGES];  // of the tiles of x
};

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
    return chunk ^ (row % 8);
}

// A tile of x, transposed, into a tile of y.
__device__ inline void transpose_tile(
    float4 (*y_smem)[BOX][CHUNKS],          // [BOXES][BOX][CHUNKS]
    const float4 (*x_smem)[BOX][CHUNKS]) {  // [BOXES][BOX][CHUNKS]
    // This thread moves rows q * VEC + 0..3 of chunk c of box b. Lanes go along a diagonal: eight lanes together read
    // eight chunks in different banks, and so do the writes, where q and c have swapped.
    const int b = threadIdx.x / BOX_THREADS;
    const int q = threadIdx.x % CHUNKS;
    const int c = threadIdx.x % BOX_THREADS / CHUNKS ^ q;
    float x4[VEC][VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
        const int r = q * VEC + i;
        const float4 chunk = x_smem[b][r][place_of(r, c)];
        x4[i][0] = chunk.x, x4[i][1] = chunk.y, x4[i][2] = chunk.z, x4[i][3] = chunk.w;
    }
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        const int r = c * VEC + j;
        y_smem[b][r][place_of(r, q)] = make_float4(x4[0][j], x4[1][j], x4[2][j], x4[3][j]);
    }
}

__global__ void __launch_bounds__(THREADS) tma_transpose_ring_f32_kernel(
    const __grid_constant__ CUtensorMap x_map,  // [M, N]
    const __grid_constant__ CUtensorMap y_map,  // [N, M]
    int tiles_m, int tiles) {
    alignas(1024) extern __shared__ unsigned char smem[];
    Ring& ring = *reinterpret_cast<Ring*>(smem);
    // The block's k-th tile goes to ring.x[k % STAGES], and transposed to ring.y[k % OUTS]. All blocks together write
    // adjacent pieces of the same rows of y.
    auto tile_of = [&](int k) { return static_cast<int>(blockIdx.x + k * gridDim.x); };
    auto row_of = [&](int k) { return tile_of(k) % tiles_m * TILE; };  // of x
    auto col_of = [&](int k) { return tile_of(k) / tiles_m * TILE; };
    auto load_tile = [&](int k) {
        const int s = k % STAGES;
        expect(&ring.full[s], BOXES * BOX_BYTES);
        for (int b = 0; b < BOXES; ++b) {
            const int col = col_of(k) + b % SIDE * BOX;
            load_box(ring.x[s][b], &x_map, col, row_of(k) + b / SIDE * BOX, &ring.full[s]);
        }
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) mbarrier_init(&ring.full[s], 1);
        for (int k = 0; k < STAGES && tile_of(k) < tiles; ++k) load_tile(k);
    }
    for (int k = 0; tile_of(k) < tiles; ++k) {
        const int s = k % STAGES;
        const int out = k % OUTS;
        // TODO(1): Tile k of x is there, for every thread. The copy engine has read the tile of y that was in
        //   ring.y[out]. The copy out of tile k - 1 may still be in flight. (~3 lines)
        if (threadIdx.x == 0) wait_read<OUTS - 1>();
        __syncthreads();
        wait(&ring.full[s], k / STAGES % 2);
        // END TODO(1)
        transpose_tile(ring.y[out], ring.x[s]);
        // TODO(2): Every thread has read ring.x[s], and what it wrote is visible to the copy engine. Then one thread
        //   stores the boxes of y, as one bulk group, and loads the next tile into ring.x[s], if there is one.
        //   (~9 lines)
        fence_proxy();
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int b = 0; b < BOXES; ++b)
                store_box(&y_map, row_of(k) + b / SIDE * BOX, col_of(k) + b % SIDE * BOX, ring.y[out][b]);
            commit_stores();
            if (tile_of(k + STAGES) < tiles) load_tile(k + STAGES);
        }
        // END TODO(2)
    }
    if (threadIdx.x == 0) wait_read<0>();
}

KATA_EXPORT void tma_transpose_ring_f32(const float* x, float* y, int M, int N, cudaStream_t stream) {
    int device = 0;
    int sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    const int tiles_m = (M - 1) / TILE + 1;
    const int tiles = tiles_m * ((N - 1) / TILE + 1);
    const int blocks = tiles < sms * BLOCKS_PER_SM ? tiles : sms * BLOCKS_PER_SM;
    const CUtensorMap x_map = matrix_map(x, M, N, BOX, BOX, CU_TENSOR_MAP_SWIZZLE_128B);
    const CUtensorMap y_map = matrix_map(y, N, M, BOX, BOX, CU_TENSOR_MAP_SWIZZLE_128B);
    cudaFuncSetAttribute(tma_transpose_ring_f32_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Ring));
    tma_transpose_ring_f32_kernel<<<blocks, THREADS, sizeof(Ring), stream>>>(x_map, y_map, tiles_m, tiles);
}
