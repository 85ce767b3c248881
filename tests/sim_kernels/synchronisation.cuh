// What races.cu and race_free.cu synchronise with, beside CUDA's own functions; how their launchers look.
#pragma once
#include "kata.cuh"
#include <cstdint>
#include <cuda_pipeline.h>

__device__ unsigned int words[64];  // flags, locks and counters: 0 in each call

#define LAUNCHER(name, grid, block)                                                             \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) {               \
        static const unsigned int zeros[64] = {};                                               \
        cudaMemcpyToSymbolAsync(words, zeros, sizeof zeros, 0, cudaMemcpyHostToDevice, stream); \
        cudaMemsetAsync(y, 0, n * sizeof(float), stream);                                       \
        name##_kernel<<<grid, block, 0, stream>>>(x, y, n);                                     \
        cudaGetLastError();                                                                     \
    }

__device__ __forceinline__ uint32_t shared_address(const void* place) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(place));
}

// ---- mbarriers

__device__ __forceinline__ void init(uint64_t* barrier, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

__device__ __forceinline__ void inval(uint64_t* barrier) {
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void arrive(uint64_t* barrier) {
    asm volatile("{.reg .b64 t; mbarrier.arrive.shared.b64 t, [%0];}" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void arrive_expecting(uint64_t* barrier, int bytes) {
    asm volatile("{.reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1;}" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// When this thread's copies are there, they arrive.
__device__ __forceinline__ void arrive_with_copies(uint64_t* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void wait(uint64_t* barrier, int parity) {
    asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @p bra D; bra W; D:}" ::"r"(
                     shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

// ---- copies

__device__ __forceinline__ void copy4(float* to, const float* from) {
    __pipeline_memcpy_async(to, from, 4);
}

__device__ __forceinline__ void bulk_load(void* to, const void* from, int bytes, uint64_t* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// ---- named barriers, flags

__device__ __forceinline__ void bar_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void bar_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void set(unsigned int* flag, unsigned int value) {
    *reinterpret_cast<volatile unsigned int*>(flag) = value;
}

__device__ __forceinline__ void await(unsigned int* flag, unsigned int value) {
    while (*reinterpret_cast<volatile unsigned int*>(flag) != value) {
    }
}
