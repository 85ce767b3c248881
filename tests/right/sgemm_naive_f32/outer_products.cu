// a kernel for every k adds an outer product to C: many launches in one graph
#include "kata.cuh"

__global__ void outer(const float* A, const float* B, float* C, int M, int N, int K, int k) {
    for (int i = blockIdx.x * 128 + threadIdx.x; i < M * N; i += gridDim.x * 128)
        C[i] = (k ? C[i] : 0.0f) + A[i / N * K + k] * B[k * N + i % N];
}
KATA_EXPORT void sgemm_naive_f32(const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
    for (int k = 0; k < K; ++k) outer<<<4, 128, 0, stream>>>(A, B, C, M, N, K, k);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphLaunch(executable, stream);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
}
