// kata_tma.cuh: tensor maps, and Hopper's copy engine (TMA), mbarriers and clusters, a function for each line of PTX
//
// The first kata that needs a function writes it out, most of them in hopper_copy. Katas after it take it from here:
// `using kata::expect;`. Titles in quotes are those of sections of the PTX ISA, which says the rest.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cuda.h>
#include <cuda_fp16.h>

#if CUDA_VERSION < 12050
// CUDA 12.5 was the first with this function. The older one has no version among its parameters.
inline cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned, unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
    return cudaGetDriverEntryPoint(symbol, function, flags, status);
}
#endif

namespace kata {

// The driver's function cuTensorMapEncodeTiled. The runtime looks it up, so nothing links the driver.
inline decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &status);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

// The name that a tensor map has for the type of its elements.
inline CUtensorMapDataType type_of_elements(const float*) {
    return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}
inline CUtensorMapDataType type_of_elements(const half*) {
    return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

// A tensor map of a row-major matrix: what one copy moves is a box of box_rows x box_cols elements. The driver wants a
// base that is 16-byte aligned, rows of the matrix and of the box that are multiples of 16 bytes, at most 256 elements
// along each dimension of the box, and with a swizzle no row of the box that is longer than its span.
template <typename T>
inline CUtensorMap matrix_map(
    const T* matrix, int rows, int cols, int box_rows, int box_cols,
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE,
    CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE) {
    // The innermost dimension first. Strides are in bytes, and the innermost has none: its elements are adjacent.
    const uint64_t dims[] = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)};
    const uint64_t strides[] = {cols * sizeof(T)};
    const uint32_t box[] = {static_cast<uint32_t>(box_cols), static_cast<uint32_t>(box_rows)};
    const uint32_t element_strides[] = {1, 1};
    CUtensorMap map;
    const CUresult result = tensor_map_encoder()(
        &map, type_of_elements(matrix), 2, const_cast<T*>(matrix), dims, strides, box, element_strides,
        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) std::printf("cuTensorMapEncodeTiled refused the map: error %d\n", result);
    return map;
}

// A tensor map of a row-major matrix, for tiles that wgmma reads. One copy moves a box of box_rows rows of 128 bytes,
// and permutes the 16-byte chunks of each row: chunk c of row r goes to place c ^ (r % 8), in a box that begins at a
// multiple of 1024 bytes.
template <typename T>
inline CUtensorMap swizzled_map(const T* matrix, int rows, int cols, int box_rows) {
    return matrix_map(
        matrix, rows, cols, box_rows, 128 / sizeof(T), CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

// The address of a place in shared memory as PTX instructions take it: 32 bits ("cvta").
__device__ inline uint32_t smem_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// A phase of the barrier ends when count arrivals have come and all bytes that they announced. The fence makes the
// barrier visible to the copy engine and, after a barrier of the cluster, to its other blocks ("mbarrier.init", "membar
// / fence"). One thread calls this. The others need a __syncthreads before they use the barrier.
__device__ inline void mbarrier_init(uint64_t* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(bar)), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival, which announces bytes of copies ("mbarrier.arrive", .expect_tx). A box counts as a whole.
__device__ inline void expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(bar)), "r"(bytes)
                 : "memory");
}

// One arrival ("mbarrier.arrive"). What this thread did before is visible to a thread that waits for the phase.
__device__ inline void arrive(uint64_t* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(bar)) : "memory");
}

// One arrival on the barrier that block number rank of the cluster has at this place ("mapa", "mbarrier.arrive"). What
// this thread wrote before need not be visible to the other block: with .release.cluster, each arrival would wait for a
// fence of the whole GPU. The other block must not have exited.
__device__ inline void arrive_at(uint64_t* bar, int rank) {
    asm volatile(
        "{\n .reg .b32 remote;\n mapa.shared::cluster.u32 remote, %0, %1;\n"
        " mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(smem_address(bar)),
        "r"(rank)
        : "memory");
}

// Waits until the phase of this parity has ended: 0 for the first phase, 1 for the second, 0 for the third
// ("mbarrier.try_wait"). During the first phase a wait for parity 1 returns at once.
__device__ inline void wait(uint64_t* bar, uint32_t parity) {
    asm volatile(
        "{\n .reg .pred p;\nAGAIN_%=:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @!p bra AGAIN_%=;\n}" ::
            "r"(smem_address(bar)),
        "r"(parity)
        : "memory");
}

// global -> shared: the copy engine moves the bytes, and the barrier counts them ("cp.async.bulk"). Addresses and bytes
// are multiples of 16.
__device__ inline void load_bytes(void* to, const void* from, uint32_t bytes, uint64_t* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     smem_address(to)),
                 "l"(from), "r"(bytes), "r"(smem_address(bar))
                 : "memory");
}

// shared -> global: part of the bulk group that this thread commits next ("cp.async.bulk"). Addresses and bytes are
// multiples of 16.
__device__ inline void store_bytes(void* to, const void* from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(smem_address(from)),
                 "r"(bytes)
                 : "memory");
}

// global -> shared: a box of the map's tensor, its first element at (row, col). The barrier counts all bytes of the
// box, also those outside of the tensor, which become 0 ("cp.async.bulk.tensor": the innermost coordinate first). A map
// that is a parameter of the kernel is a __grid_constant__. The shared address is a multiple of 128, and col is at a
// multiple of 16 bytes in its row.
__device__ inline void load_box(void* to, const CUtensorMap* map, int col, int row, uint64_t* bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(smem_address(to)),
        "l"(map), "r"(col), "r"(row), "r"(smem_address(bar))
        : "memory");
}

// load_box for every block of the cluster whose bit is in mask: the box goes to the same place in each, and each one's
// own barrier counts its bytes ("cp.async.bulk.tensor", .multicast::cluster).
__device__ inline void multicast_box(void* to, const CUtensorMap* map, int col, int row, uint64_t* bar, uint16_t mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%2, %3}], [%4], %5;" ::"r"(smem_address(to)),
        "l"(map), "r"(col), "r"(row), "r"(smem_address(bar)), "h"(mask)
        : "memory");
}

// shared -> global: the part of the box that is inside of the tensor ("cp.async.bulk.tensor"). It belongs to the bulk
// group that this thread commits next. A box must not begin before the tensor.
__device__ inline void store_box(const CUtensorMap* map, int col, int row, const void* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                 "r"(col), "r"(row), "r"(smem_address(from))
                 : "memory");
}

// Makes a bulk group of all stores that this thread has issued since the last commit ("cp.async.bulk.commit_group").
__device__ inline void commit_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until the copy engine has read the source of all but the LEFT newest bulk groups of this thread
// ("cp.async.bulk.wait_group", .read). Only then may the source be overwritten, or the block end.
template <int LEFT>
__device__ inline void wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

// Makes what this thread has written to shared memory visible to the copy engine and to wgmma ("Async proxy"). Every
// thread that has written calls this, and a barrier comes after it.
__device__ inline void fence_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// This block's number in its cluster ("%cluster_ctarank").
__device__ inline int cluster_rank() {
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// A barrier for all threads of the cluster that have not exited ("barrier.cluster").
__device__ inline void cluster_sync() {
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

}  // namespace kata
