// hgemm_mma_cublas_tn: C = A @ B^T by cuBLAS, with one transposed operand
//
// Shapes     A: [M, K] f16, B: [N, K] f16, C: [M, N] f16, row-major, any M, N, K
// Technique  one call of cublasGemmEx; read by columns, the buffers hold B^T, A^T and C^T, and C^T = (B^T)^T @ A^T
// New        over hgemm_mma_cublas_nn: CUBLAS_OP_T, and the leading dimension of a transposed matrix
// Bound      Tensor Cores
#include "kata.cuh"
#include <cublas_v2.h>
#include <cuda_fp16.h>

// A handle owns device memory and is slow to create, so the process keeps one.
inline cublasHandle_t shared_handle() {
    static const cublasHandle_t handle = [] {
        cublasHandle_t made = nullptr;
        cublasCreate(&made);
        return made;
    }();
    return handle;
}

KATA_EXPORT void hgemm_mma_cublas_tn(const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    if (M == 0 || N == 0) return;
    // TODO(1): take the handle, and set it to the launcher's stream (~2 lines)
    const cublasHandle_t handle = shared_handle();
    cublasSetStream(handle, stream);
    // END TODO(1)
    // TODO(2): one product of column-major matrices that leaves C in row-major order, with sums in float. Choose the
    //   operand to transpose, and each leading dimension: the distance between two columns in memory (~6 lines)
    const float alpha = 1.0f, beta = 0.0f;  // the type of the sums
    cublasGemmEx(
        handle, CUBLAS_OP_T, CUBLAS_OP_N, N, M, K, &alpha, B, CUDA_R_16F, K, A, CUDA_R_16F, K, &beta, C, CUDA_R_16F, N,
        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    // END TODO(2)
}
