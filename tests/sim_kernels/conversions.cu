// One conversion or packed operation a kernel, on lists of bit patterns.
#include "kata.cuh"

// NAME(d, a, b, c): one launcher, one thread an element; all are 32-bit patterns.
#define KERNEL(NAME, ...)                                                                                            \
    __global__ void NAME##_kernel(const unsigned* as, const unsigned* bs, const unsigned* cs, unsigned* ds, int n) { \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                                                         \
        if (i >= n) return;                                                                                          \
        const unsigned a = as[i], b = bs[i], c = cs[i];                                                              \
        unsigned d = a ^ b ^ c;                                                                                      \
        __VA_ARGS__;                                                                                                 \
        ds[i] = d;                                                                                                   \
    }                                                                                                                \
    KATA_EXPORT void NAME(                                                                                           \
        const unsigned* a, const unsigned* b, const unsigned* c, unsigned* d, int n, cudaStream_t stream) {          \
        NAME##_kernel<<<(n + 127) / 128, 128, 0, stream>>>(a, b, c, d, n);                                           \
    }

#define TO_8(FORM, ...)                             \
    unsigned short h;                               \
    asm volatile(FORM ";" : "=h"(h) : __VA_ARGS__); \
    d = h

#define FLOAT8(T)                                                                                                    \
    KERNEL(                                                                                                          \
        T##_f32, TO_8("cvt.rn.satfinite." #T "x2.f32 %0, %1, %2", "f"(__uint_as_float(a)), "f"(__uint_as_float(b)))) \
    KERNEL(                                                                                                          \
        T##_relu_f32,                                                                                                \
        TO_8("cvt.rn.satfinite.relu." #T "x2.f32 %0, %1, %2", "f"(__uint_as_float(a)), "f"(__uint_as_float(b))))     \
    KERNEL(T##_f16, TO_8("cvt.rn.satfinite." #T "x2.f16x2 %0, %1", "r"(a)))                                          \
    KERNEL(T##_relu_f16, TO_8("cvt.rn.satfinite.relu." #T "x2.f16x2 %0, %1", "r"(a)))                                \
    KERNEL(f16_##T, asm volatile("cvt.rn.f16x2." #T "x2 %0, %1;" : "=r"(d) : "h"((unsigned short)a)))                \
    KERNEL(f16_relu_##T, asm volatile("cvt.rn.relu.f16x2." #T "x2 %0, %1;" : "=r"(d) : "h"((unsigned short)a)))

FLOAT8(e4m3)
FLOAT8(e5m2)

#define TO_16(NAME, FORM) KERNEL(NAME, unsigned short h; asm volatile(FORM " %0, %1;" : "=h"(h) : "r"(a)); d = h)
TO_16(rz_f16_s32, "cvt.rz.f16.s32")
TO_16(rm_f16_s32, "cvt.rm.f16.s32")
TO_16(rp_f16_s32, "cvt.rp.f16.s32")
TO_16(rz_f16_u32, "cvt.rz.f16.u32")
TO_16(rp_f16_u32, "cvt.rp.f16.u32")
TO_16(rz_bf16_s32, "cvt.rz.bf16.s32")
TO_16(rm_bf16_s32, "cvt.rm.bf16.s32")
TO_16(rp_bf16_u32, "cvt.rp.bf16.u32")

#define THREE(NAME, FORM) KERNEL(NAME, asm volatile(FORM " %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)))
#define TWO(NAME, FORM) KERNEL(NAME, asm volatile(FORM " %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)))
THREE(vabsdiff4_u32, "vabsdiff4.u32.u32.u32")
THREE(vabsdiff4_s32, "vabsdiff4.s32.s32.s32")
THREE(vabsdiff4_u32_add, "vabsdiff4.u32.u32.u32.add")
THREE(vabsdiff2_u32_add, "vabsdiff2.u32.u32.u32.add")
THREE(dp2a_lo_u32_s32, "dp2a.lo.u32.s32")
THREE(dp2a_hi_s32_u32, "dp2a.hi.s32.u32")
THREE(dp4a_s32_u32, "dp4a.s32.u32")
TWO(max_s16x2_relu, "max.s16x2.relu")
TWO(min_s32_relu, "min.s32.relu")
TWO(pack_s16, "cvt.pack.sat.s16.s32")
TWO(pack_u16, "cvt.pack.sat.u16.s32")
THREE(pack_s8, "cvt.pack.sat.s8.s32.b32")
THREE(pack_u8, "cvt.pack.sat.u8.s32.b32")

// ---- vectors of atomics: every thread adds its number and more to each element

__global__ void vector_red_kernel(float* sums) {
    const float x = float(threadIdx.x);
    if (threadIdx.x < 6) sums[threadIdx.x] = 0.0f;
    __syncthreads();
    atomicAdd(reinterpret_cast<float4*>(sums), make_float4(x, x + 1, x + 2, x + 3));
    atomicAdd(reinterpret_cast<float2*>(sums + 4), make_float2(x + 4, x + 5));
}

KATA_EXPORT void vector_red(float* sums, cudaStream_t stream) {
    vector_red_kernel<<<1, 64, 0, stream>>>(sums);
}

__global__ void half_red_kernel(unsigned* sums) {
    if (threadIdx.x < 4) sums[threadIdx.x] = 0;
    __syncthreads();
    asm volatile("red.global.add.noftz.v4.f16x2 [%0], {%1, %2, %1, %2};" ::"l"(sums), "r"(0x40003c00), "r"(0xbc003c00)
                 : "memory");  // (1, 2) and (1, -1)
}

KATA_EXPORT void half_red(unsigned* sums, cudaStream_t stream) {
    half_red_kernel<<<1, 64, 0, stream>>>(sums);
}
