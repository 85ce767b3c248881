// Tiles through wmma, ldmatrix, stmatrix and movmatrix; some of them wrong, on the lines that say how.
#include <mma.h>

#include "kata.cuh"

using namespace nvcuda;

// ---- wmma: d = (2 a) b + (c + 1), one tile, by one warp, through shared or from global memory

// A staged tile and its leading dimension.
template <class T, int ROWS, int COLUMNS>
__device__ const T* stage(const T* from, T* tile_smem, int pitch, bool row_major) {
    const int line = row_major ? COLUMNS : ROWS;
    for (int i = threadIdx.x; i < ROWS * COLUMNS; i += 32) tile_smem[i / line * pitch + i % line] = from[i];
    __syncwarp();
    return tile_smem;
}

template <class Fragment, class F>
__device__ void each(Fragment& fragment, F f) {
    for (int i = 0; i < fragment.num_elements; ++i) fragment.x[i] = f(fragment.x[i]);
}

template <class T, class Stored, class Sum, int M, int N, int K, class OrderA, class OrderB, bool SHARED>
__global__ void wmma_kernel(const Stored* a, const Stored* b, const Sum* c, Sum* d) {
    constexpr bool A_ROWS = std::is_same<OrderA, wmma::row_major>::value;
    constexpr bool B_ROWS = std::is_same<OrderB, wmma::row_major>::value;
    constexpr int PITCH_A = (A_ROWS ? K : M) + 16, PITCH_B = (B_ROWS ? N : K) + 16;
    __shared__ __align__(32) Stored a_smem[(A_ROWS ? M : K) * PITCH_A], b_smem[(B_ROWS ? K : N) * PITCH_B];
    wmma::fragment<wmma::matrix_a, M, N, K, T, OrderA> a_rmem;
    wmma::fragment<wmma::matrix_b, M, N, K, T, OrderB> b_rmem;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> c_rmem;
    if (SHARED) {
        wmma::load_matrix_sync(a_rmem, stage<Stored, M, K>(a, a_smem, PITCH_A, A_ROWS), PITCH_A);
        wmma::load_matrix_sync(b_rmem, stage<Stored, K, N>(b, b_smem, PITCH_B, B_ROWS), PITCH_B);
    } else {
        wmma::load_matrix_sync(a_rmem, a, PITCH_A - 16);
        wmma::load_matrix_sync(b_rmem, b, PITCH_B - 16);
    }
    const wmma::layout_t order = A_ROWS ? wmma::mem_row_major : wmma::mem_col_major;
    wmma::load_matrix_sync(c_rmem, c, A_ROWS ? N : M, order);
    each(a_rmem, [](Stored x) { return Stored(x + x); });
    each(c_rmem, [](Sum x) { return Sum(x + Sum(1)); });
    wmma::mma_sync(c_rmem, a_rmem, b_rmem, c_rmem);
    wmma::store_matrix_sync(d, c_rmem, A_ROWS ? N : M, order);
}

template <class T, class Stored, class Sum, int M, int N, int K>
void wmma_tile(const void* a, const void* b, const void* c, void* d, int a_rows, int b_rows, cudaStream_t stream) {
    using Row = wmma::row_major;
    using Column = wmma::col_major;
    using Kernel = void (*)(const Stored*, const Stored*, const Sum*, Sum*);
    const Kernel kernels[] = {
        wmma_kernel<T, Stored, Sum, M, N, K, Column, Column, false>,
        wmma_kernel<T, Stored, Sum, M, N, K, Column, Row, true>,
        wmma_kernel<T, Stored, Sum, M, N, K, Row, Column, true>,
        wmma_kernel<T, Stored, Sum, M, N, K, Row, Row, false>,
    };
    kernels[2 * a_rows + b_rows]<<<1, 32, 0, stream>>>((const Stored*)a, (const Stored*)b, (const Sum*)c, (Sum*)d);
}

#define WMMA(NAME, T, STORED, SUM, M, N, K)                                                                  \
    KATA_EXPORT void NAME(                                                                                   \
        const void* a, const void* b, const void* c, void* d, int a_rows, int b_rows, cudaStream_t stream) { \
        wmma_tile<T, STORED, SUM, M, N, K>(a, b, c, d, a_rows, b_rows, stream);                              \
    }

WMMA(wmma_f16_f32_16_16_16, half, half, float, 16, 16, 16)
WMMA(wmma_f16_f32_32_8_16, half, half, float, 32, 8, 16)
WMMA(wmma_f16_f32_8_32_16, half, half, float, 8, 32, 16)
WMMA(wmma_f16_f16_16_16_16, half, half, half, 16, 16, 16)
WMMA(wmma_f16_f16_32_8_16, half, half, half, 32, 8, 16)
WMMA(wmma_f16_f16_8_32_16, half, half, half, 8, 32, 16)
WMMA(wmma_bf16_f32_16_16_16, __nv_bfloat16, __nv_bfloat16, float, 16, 16, 16)
WMMA(wmma_bf16_f32_32_8_16, __nv_bfloat16, __nv_bfloat16, float, 32, 8, 16)
WMMA(wmma_bf16_f32_8_32_16, __nv_bfloat16, __nv_bfloat16, float, 8, 32, 16)
WMMA(wmma_tf32_f32_16_16_8, wmma::precision::tf32, float, float, 16, 16, 8)
WMMA(wmma_s8_i32_16_16_16, signed char, signed char, int, 16, 16, 16)
WMMA(wmma_u8_i32_32_8_16, unsigned char, unsigned char, int, 32, 8, 16)
WMMA(wmma_s8_i32_8_32_16, signed char, signed char, int, 8, 32, 16)
WMMA(wmma_f64_f64_8_8_4, double, double, double, 8, 8, 4)

// ---- ldmatrix and stmatrix: rows of 8 halves; a lane's row is wherever its address points

__device__ unsigned smem_address(const void* p) {
    return unsigned(__cvta_generic_to_shared(p));
}

__device__ void load_x4(unsigned (&r)[4], unsigned from, bool transposed) {
    if (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(from)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(from)
                     : "memory");
}

__global__ void load_kernel(const unsigned* in, unsigned* out, int count, int transposed) {
    __shared__ __align__(16) unsigned rows_smem[32 * 4];  // [lane][16 bytes], the rows from last to first
    const int lane = threadIdx.x;
    for (int i = 0; i < 4; ++i) rows_smem[(31 - lane) * 4 + i] = in[lane * 4 + i];
    __syncthreads();
    const unsigned from = smem_address(rows_smem + (31 - lane) * 4);
    unsigned r[4] = {};
    if (count == 4) load_x4(r, from, transposed);
    if (count == 2 && !transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(from));
    if (count == 2 && transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(from));
    if (count == 1 && !transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(from));
    if (count == 1 && transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(from));
    for (int i = 0; i < count; ++i) out[i * 32 + lane] = r[i];
}

KATA_EXPORT void load_matrices(const unsigned* in, unsigned* out, int count, int transposed, cudaStream_t stream) {
    load_kernel<<<1, 32, 0, stream>>>(in, out, count, transposed);
}

__global__ void store_kernel(const unsigned* in, unsigned* out, int count, int transposed) {
    __shared__ __align__(16) unsigned rows_smem[32 * 4];
    const int lane = threadIdx.x;
    unsigned r[4];
    for (int i = 0; i < 4; ++i) r[i] = in[i * 32 + lane];
    const unsigned to = smem_address(rows_smem + lane * 4);
    if (count == 4 && !transposed)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r[0]), "r"(r[1]),
                     "r"(r[2]), "r"(r[3])
                     : "memory");
    if (count == 4 && transposed)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r[0]),
                     "r"(r[1]), "r"(r[2]), "r"(r[3])
                     : "memory");
    if (count == 2 && !transposed)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(r[0]), "r"(r[1])
                     : "memory");
    if (count == 1 && !transposed)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(to), "r"(r[0]) : "memory");
    __syncthreads();
    if (lane < count * 8)
        for (int i = 0; i < 4; ++i) out[lane * 4 + i] = rows_smem[lane * 4 + i];
}

KATA_EXPORT void store_matrices(const unsigned* in, unsigned* out, int count, int transposed, cudaStream_t stream) {
    store_kernel<<<1, 32, 0, stream>>>(in, out, count, transposed);
}

__global__ void move_kernel(const unsigned* in, unsigned* out) {
    unsigned d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(in[threadIdx.x]));
    out[threadIdx.x] = d;
}

KATA_EXPORT void move_matrix(const unsigned* in, unsigned* out, cudaStream_t stream) {
    move_kernel<<<1, 32, 0, stream>>>(in, out);
}

// ---- wrong on purpose: `fault` says how

enum { SOUND, OUTSIDE, CROOKED, UNWRITTEN, RACING, PARTED, HALF_A_WARP };

__global__ void faulty_kernel(unsigned* out, int fault) {
    __shared__ __align__(16) unsigned tile_smem[32 * 4];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (warp == 0 && !(fault == UNWRITTEN && lane == 5))
        for (int i = 0; i < 4; ++i) tile_smem[lane * 4 + i] = lane;
    if (fault != RACING) __syncthreads();
    unsigned from = smem_address(tile_smem + lane * 4), r[4] = {};
    if (fault == OUTSIDE && lane == 7) from += 16 * 25;
    if (fault == CROOKED && lane == 9) from += 8;
    if (fault == PARTED && lane >= 16) return;
    if (warp == (fault == RACING))
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(from)  // ldmatrix
                     : "memory");
    out[threadIdx.x] = r[0] + r[1] + r[2] + r[3];
}

KATA_EXPORT void faulty_load(unsigned* out, int fault, cudaStream_t stream) {
    faulty_kernel<<<1, fault == HALF_A_WARP ? 16 : fault == RACING ? 64 : 32, 0, stream>>>(out, fault);
}

__global__ void outside_tile_kernel(const half* a, float* d) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a_rmem;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b_rmem;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c_rmem;
    wmma::fill_fragment(b_rmem, half(1.0f));
    wmma::fill_fragment(c_rmem, 0.0f);
    wmma::load_matrix_sync(a_rmem, a, 32);  // outside
    wmma::mma_sync(c_rmem, a_rmem, b_rmem, c_rmem);
    wmma::store_matrix_sync(d, c_rmem, 16, wmma::mem_row_major);
}

KATA_EXPORT void outside_tile(const half* a, float* d, cudaStream_t stream) {
    outside_tile_kernel<<<1, 32, 0, stream>>>(a, d);
}
