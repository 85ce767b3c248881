// Wrong: the handle works on the default stream
// Kata: hgemm_mma_cublas_nn
// Sim: race
// Gpu: wrong answer | pass: whether the default stream comes before or after what the launcher's stream does is luck
// Says: default stream|wrong
#include "kata.cuh"
#include <cublas_v2.h>
#include <cuda_fp16.h>

// A handle owns memory on the device and takes long to make, so there is one for as long as the process lives.
inline cublasHandle_t shared_handle() {
    static const cublasHandle_t handle = [] {
        cublasHandle_t made = nullptr;
        cublasCreate(&made);
        return made;
    }();
    return handle;
}

KATA_EXPORT void hgemm_mma_cublas_nn(const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t stream) {
    if (M == 0 || N == 0) return;
    const cublasHandle_t handle = shared_handle();
    const float alpha = 1.0f, beta = 0.0f;  // of the type that the sums are kept in
    cublasGemmEx(
        handle, CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, &alpha, B, CUDA_R_16F, N, A, CUDA_R_16F, K, &beta, C, CUDA_R_16F, N,
        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
