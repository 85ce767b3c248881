// Wrong: a main() that tests itself, and no launcher
// Kata: elementwise_f32
// Sim: does not compile
// Gpu: does not compile
// Says: main\(\)
#include "kata.cuh"

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    elementwise_f32_kernel(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    // The last block ends at most at 2^31 - 1, because THREADS divides 2^31: int holds every idx.
    const int idx = blockIdx.x * THREADS + threadIdx.x;
    if (idx < n) c[idx] = a[idx] + b[idx];
}

int main() {
    constexpr int n = 1000;
    float* memory = nullptr;
    cudaMallocManaged(&memory, 3 * n * sizeof(float));
    for (int i = 0; i < 2 * n; ++i) memory[i] = static_cast<float>(i);
    elementwise_f32_kernel<<<(n - 1) / THREADS + 1, THREADS>>>(memory, memory + n, memory + 2 * n, n);
    cudaDeviceSynchronize();
    return memory[2 * n] == memory[0] + memory[n] ? 0 : 1;
}
