// What the files about Hopper share: tensor maps on the host; mbarriers, bulk and tensor copies on the device.
#pragma once
#include "kata.cuh"
#include <cuda.h>
#include <cstdint>

// ---- maps

inline CUresult encode(
    CUtensorMap* map, CUtensorMapDataType type, uint32_t rank, const void* base, const uint64_t* dims,
    const uint64_t* strides, const uint32_t* box, CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE,
    const uint32_t* element_strides = nullptr, CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &status);
    const uint32_t ones[5] = {1, 1, 1, 1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        map, type, rank, const_cast<void*>(base), dims, strides, box, element_strides ? element_strides : ones,
        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, fill);
}

// Of a matrix with rows one after the other.
inline CUtensorMap matrix_map(
    const void* base, CUtensorMapDataType type, int item, int rows, int columns, int box_rows, int box_columns,
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE) {
    CUtensorMap map;
    const uint64_t dims[] = {uint64_t(columns), uint64_t(rows)}, strides[] = {uint64_t(columns) * item};
    const uint32_t box[] = {uint32_t(box_columns), uint32_t(box_rows)};
    encode(&map, type, 2, base, dims, strides, box, swizzle);
    return map;
}
inline CUtensorMap float_map(
    const void* base, int rows, int columns, int box_rows, int box_columns,
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE) {
    return matrix_map(base, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, rows, columns, box_rows, box_columns, swizzle);
}
inline CUtensorMap half_map(
    const void* base, int rows, int columns, int box_rows, int box_columns,
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) {
    return matrix_map(base, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, rows, columns, box_rows, box_columns, swizzle);
}

// For columns of pixels; corners in the order W, H, D.
inline CUresult encode_pixels(
    CUtensorMap* map, uint32_t rank, const void* base, const uint64_t* dims, const uint64_t* strides, const int* lower,
    const int* upper, uint32_t channels, uint32_t pixels, CUtensorMapSwizzle swizzle, const uint32_t* element_strides) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeIm2col", &function, 12000, cudaEnableDefault, &status);
    return reinterpret_cast<decltype(&cuTensorMapEncodeIm2col)>(function)(
        map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, const_cast<void*>(base), dims, strides, lower, upper, channels,
        pixels, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// ---- mbarriers

#define DEVICE __device__ __forceinline__

DEVICE uint32_t smem(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
DEVICE void initialise(uint64_t* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(bar)), "r"(count) : "memory");
}
DEVICE void fence_initialised() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEVICE void expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(bar)), "r"(bytes) : "memory");
}
DEVICE void arrive(uint64_t* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem(bar)) : "memory");
}
DEVICE void wait(uint64_t* bar, uint32_t parity) {
    asm volatile(
        "{\n .reg .pred p;\nAGAIN_%=:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @!p bra AGAIN_%=;\n}" ::
            "r"(smem(bar)),
        "r"(parity)
        : "memory");
}

// ---- copies

DEVICE void load_box(void* to, const CUtensorMap* map, int x, int y, uint64_t* bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(smem(to)),
        "l"(map), "r"(x), "r"(y), "r"(smem(bar))
        : "memory");
}
DEVICE void store_box(const CUtensorMap* map, int x, int y, const void* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x),
                 "r"(y), "r"(smem(from))
                 : "memory");
}
DEVICE void add_box(const CUtensorMap* map, int x, int y, const void* from) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
        "r"(x), "r"(y), "r"(smem(from))
        : "memory");
}
DEVICE void fence_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DEVICE void commit_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int LEFT = 0>
DEVICE void wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}
DEVICE void wait_written() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
DEVICE bool elected() {
    uint32_t leader;
    asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(leader));
    return leader != 0;
}

// ---- clusters

DEVICE uint32_t rank() {
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
DEVICE uint32_t address_in(const void* p, uint32_t block) {
    uint32_t a;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(smem(p)), "r"(block));
    return a;
}
DEVICE void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
}
DEVICE void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
DEVICE void cluster_wait() {
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
DEVICE void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}
DEVICE float read_remote(uint32_t address) {
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}
DEVICE void arrive_remote(uint64_t* bar, uint32_t block) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address_in(bar, block))
                 : "memory");
}
DEVICE void send(float* to, float value, uint64_t* bar, uint32_t block) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(address_in(to, block)),
        "f"(value), "r"(address_in(bar, block))
        : "memory");
}
DEVICE void add_remote(uint32_t* to, uint32_t value, uint64_t* bar, uint32_t block) {
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(
                     address_in(to, block)),
                 "r"(value), "r"(address_in(bar, block))
                 : "memory");
}
DEVICE void load_box_to(void* to, const CUtensorMap* map, int x, int y, uint64_t* bar, int mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
        "{%2, "
        "%3}], [%4], %5;" ::"r"(smem(to)),
        "l"(map), "r"(x), "r"(y), "r"(smem(bar)), "h"(uint16_t(mask))
        : "memory");
}
DEVICE void copy_to_block(void* to, const void* from, int bytes, uint64_t* bar, uint32_t block) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     address_in(to, block)),
                 "r"(smem(from)), "r"(bytes), "r"(address_in(bar, block))
                 : "memory");
}
DEVICE void test_remote(uint64_t* bar, uint32_t block) {
    uint64_t there;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(bar), "r"(block));
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.b64 p, [%0], 0;\n}" ::"l"(there) : "memory");
}

// Bytes in a row, by TMA without a map.
DEVICE void load_bytes(void* to, const void* from, int bytes, uint64_t* bar) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem(to)),
        "l"(from), "r"(bytes), "r"(smem(bar))
        : "memory");
}

// ---- barriers of some warps of a block

DEVICE void named_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DEVICE void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Four matrices of 8 x 8 halves; each lane has the address of a row.
DEVICE void store_matrix(void* row, const uint32_t (&four)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem(row)), "r"(four[0]),
                 "r"(four[1]), "r"(four[2]), "r"(four[3])
                 : "memory");
}

// ---- wgmma

// A matrix in shared memory; bytes. `mode`: 0 none, 1 to 3: swizzles of 128, 64, 32 bytes.
DEVICE uint64_t descriptor(const void* p, uint32_t leading, uint32_t stride, uint32_t mode = 1) {
    const uint64_t field = 0x3ffff;
    return (smem(p) & field) >> 4 | uint64_t(leading >> 4) << 16 | uint64_t(stride >> 4) << 32 | uint64_t(mode) << 62;
}
DEVICE void warpgroup_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEVICE void warpgroup_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int LEFT>
DEVICE void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
// d += a b, of 64 x 64 by 16; TRANSPOSED: b has its columns one after the other.
template <int TRANSPOSED = 0>
DEVICE void multiply_64(float (&d)[32], uint64_t a, uint64_t b, int adds) {
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %34, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, "
        "1, "
        "1, 0, %35;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(adds), "n"(TRANSPOSED));
}
// d += a b with a in registers, of 64 x 16 by 16
DEVICE void multiply_registers_16(float (&d)[8], const uint32_t (&a)[4], uint64_t b, int adds) {
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %13, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, "
        "%12, "
        "p, 1, 1, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
}
// The same with a in registers.
template <int TRANSPOSED = 0>
DEVICE void multiply_registers_64(float (&d)[32], const uint32_t* a, uint64_t b, int adds) {
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %37, 0;\n"
        " wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, "
        "%34, %35}, %36, p, 1, 1, %38;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds), "n"(TRANSPOSED));
}
