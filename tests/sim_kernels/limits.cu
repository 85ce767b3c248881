// Calls that go deep, arrays beside each other, and launches at and beyond what the card allows.
#include "kata.cuh"
#include <cuda_fp16.h>

#define LAUNCHER(name, grid, block)                                               \
    KATA_EXPORT void name(const float* x, float* y, int n, cudaStream_t stream) { \
        name##_kernel<<<grid, block, 0, stream>>>(x, y, n);                       \
    }

// ---- functions that call themselves

__device__ __noinline__ int fibonacci(int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
__global__ void fibonacci_kernel(const float* x, float* y, int n) {
    y[blockIdx.x * blockDim.x + threadIdx.x] = fibonacci(threadIdx.x % 12);
}
LAUNCHER(fibonacci, 2, 64)

// Every activation has an array of its own, and reads that of its caller.
__device__ __noinline__ float descend(const float* outer, int depth) {
    float mine[4];
    for (int k = 0; k < 4; ++k) mine[(k + depth) % 4] = outer[k] + depth;
    if (depth == 0) return mine[0] + mine[3];
    const float below = descend(mine, depth - 1);
    return below + mine[depth % 4] + outer[1];
}
__global__ void frames_kernel(const float* x, float* y, int n) {
    float first[4];
    for (int k = 0; k < 4; ++k) first[(k + n) % 4] = x[threadIdx.x + k];
    y[threadIdx.x] = descend(first, threadIdx.x % 7);
}
LAUNCHER(frames, 1, 64)

__device__ bool is_odd(int n);
__device__ __noinline__ bool is_even(int n) {
    return n == 0 || is_odd(n - 1);
}
__device__ __noinline__ bool is_odd(int n) {
    return n != 0 && is_even(n - 1);
}
__device__ bool (*volatile parity)(int) = is_even;
__global__ void mutual_kernel(const float* x, float* y, int n) {
    y[threadIdx.x] = is_even(threadIdx.x) * 2 + parity(threadIdx.x + 1);
}
LAUNCHER(mutual, 1, 64)

__device__ __noinline__ float reads_early(int depth, int at) {
    volatile float mine[8];
    if (depth == 0) mine[at] = 1;
    const float below = depth < 2 ? reads_early(depth + 1, at) : 0;
    return below + mine[at];  // reads_early
}
__global__ void reads_early_kernel(const float* x, float* y, int n) {
    y[0] = reads_early(0, n % 8);
}
LAUNCHER(reads_early, 1, 1)

__device__ __noinline__ float wide(const float* x, int depth) {
    float mine[64];  // 256 bytes
    for (int k = 0; k < 64; ++k) mine[k] = x[k] + depth;
    return depth == 0 ? mine[int(x[0])] : wide(x, depth - 1) + mine[int(x[depth])];  // overflow
}
__global__ void overflow_kernel(const float* x, float* y, int n) {
    y[threadIdx.x] = wide(x, threadIdx.x == 37 ? 5 : 1);
}
LAUNCHER(overflow, 1, 64)
KATA_EXPORT void deep_enough(const float* x, float* y, int n, cudaStream_t stream) {
    cudaDeviceSetLimit(cudaLimitStackSize, 4096);
    overflow_kernel<<<1, 64, 0, stream>>>(x, y, n);
}

// ---- arrays beside each other in shared memory

__global__ void next_array_kernel(const float* x, float* y, int n) {
    __shared__ float first[32], second[32];
    const int i = threadIdx.x;
    second[i] = 0;
    first[i] = 0;
    __syncthreads();
    first[i + 1] = x[i];  // next_array
    __syncthreads();
    y[i] = first[i] + second[i];
}
LAUNCHER(next_array, 1, 32)

__global__ void array_before_kernel(const float* x, float* y, int n) {
    __shared__ float first[32], second[32];
    const int i = threadIdx.x;
    first[i] = x[i];
    second[i] = x[i];
    __syncthreads();
    float sum = 0;
    for (int k = -1; k < 2; ++k) sum += second[(i & 15) + k] + first[i & 15];  // array_before
    y[i] = sum;
}
LAUNCHER(array_before, 1, 32)

// ---- a block that waits for another one

__global__ void waits_kernel(const float* x, float* y, volatile int* is_done, int rounds) {
    const int i = threadIdx.x;
    if (blockIdx.x == 0) {
        float sum = x[i];
        for (int round = 0; round < rounds; ++round) sum = sum * 0.5f + 1.0f;
        y[i] = sum;
        __syncthreads();
        __threadfence();
        if (i == 0) *is_done = 1;
    } else {
        while (i == 0 && *is_done == 0) {
        }
    }
}
__global__ void set_to_zero_kernel(int* is_done) {
    *is_done = 0;
}
KATA_EXPORT void waits(const float* x, float* y, int n, cudaStream_t stream) {
    int* is_done = nullptr;
    cudaMalloc(&is_done, sizeof *is_done);
    set_to_zero_kernel<<<1, 1, 0, stream>>>(is_done);
    waits_kernel<<<2, 32, 0, stream>>>(x, y, is_done, n);
    cudaFree(is_done);
}

// ---- arrays of several dimensions

constexpr int GRID_ROWS = 4, GRID_COLUMNS = 2 * GRID_ROWS;

__global__ void row_past_kernel(const float* x, float* y, int n) {
    __shared__ alignas(16) float grid[GRID_ROWS][GRID_COLUMNS + 1];
    const int i = threadIdx.x;
    for (int row = 0; row < GRID_ROWS; ++row) grid[row + n / 65][i] = x[i];  // row_past
    __syncthreads();
    y[i] = grid[i % GRID_ROWS][0];
}
LAUNCHER(row_past, 1, 8)

__global__ void element_unwritten_kernel(const float* x, float* y, int n) {
    __shared__ __half grid[2][3][8];
    const int i = threadIdx.x;
    for (int row = 0; row < 2; ++row)
        for (int column = 0; column < 3; ++column)
            if (i != 5 || column != 2 || row != 1) grid[row][column][i] = __float2half(x[i]);
    __syncthreads();
    y[i] = __half2float(grid[n / 65][2][7 - i]);  // element_unwritten
}
LAUNCHER(element_unwritten, 1, 8)

__global__ void vector_unwritten_kernel(const float* x, float* y, int n) {
    __shared__ __align__(16) float grid[8][8];
    const int i = threadIdx.x;
    for (int row = 0; row < 8; ++row)
        if (row != 3 || i != 6) grid[row][i] = x[i];
    __syncthreads();
    reinterpret_cast<float4*>(y)[i] = *reinterpret_cast<const float4*>(&grid[(i + n) % 8][4]);  // vector_unwritten
}
LAUNCHER(vector_unwritten, 1, 8)

template <int COLUMNS>
__global__ void row_unknown_kernel(const float* x, float* y, int n) {
    __shared__ float lattice[4][COLUMNS];
    const int i = threadIdx.x;
    lattice[n / 65][i] = x[i];
    __syncthreads();
    y[i] = lattice[n / 65][i] + lattice[n / 65 + (i == 3)][i];  // row_unknown
}
KATA_EXPORT void row_unknown(const float* x, float* y, int n, cudaStream_t stream) {
    row_unknown_kernel<16><<<1, 8, 0, stream>>>(x, y, n);
}

__global__ void constant_past_kernel(const float* x, float* y, int n) {
    __shared__ volatile float first[8], second[8];
    second[threadIdx.x] = x[threadIdx.x];
    first[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = first[8 + n % 2] + second[threadIdx.x];  // constant_past
}
LAUNCHER(constant_past, 1, 8)

// What looks like it: a pointer to one array or the other, buffers that change places, rows of one array.
__global__ void two_arrays_kernel(const float* x, float* y, int n) {
    __shared__ float first[64], second[64];
    __shared__ float rows[2][64];
    const int i = threadIdx.x;
    float *now = first, *next = second;
    now[i] = x[i];
    for (int step = 1; step < 64; step *= 2) {
        __syncthreads();
        next[i] = now[i] + (i >= step ? now[i - step] : 0);
        float* swap = now;
        now = next;
        next = swap;
    }
    float* picked = i % 2 ? first : second;
    __syncthreads();
    picked[i] = now[i];
    (&rows[0][0])[i + 64] = picked[i];
    rows[0][i] = 0;
    __syncthreads();
    y[i] = rows[0][127 - i];
}
LAUNCHER(two_arrays, 1, 64)

// ---- launches

__global__ void local_memory_kernel(const float* x, float* y, int n) {
    float mine[200000];
    for (int k = 0; k < n; ++k) mine[k * n] = x[k];
    y[0] = mine[n];
}
LAUNCHER(local_memory, 1, 1)

__global__ void nothing_kernel(float* y) {}
__global__ void __launch_bounds__(64, 2) bounded_kernel(float* y) {}
__global__ void static_kernel(float* y) {
    __shared__ volatile float tile[11 << 10];
    tile[threadIdx.x] = 0;
}

__global__ void report_kernel(float* y, float value) {
    *y = value;
}
static void report(float* y, int i, float value, cudaStream_t stream) {
    report_kernel<<<1, 1, 0, stream>>>(y + i, value);
}
// y = what cudaPeekAtLastError says, what cudaGetLastError says, and what it says again
static void report_error(float* y, cudaStream_t stream) {
    const float said[] = {float(cudaPeekAtLastError()), float(cudaGetLastError()), float(cudaGetLastError())};
    for (int i = 0; i < 3; ++i) report(y, i, said[i], stream);
}
KATA_EXPORT void geometry(
    float* y, int gx, int gy, int gz, int bx, int by, int bz, int dynamic_shared, int bounded, cudaStream_t stream) {
    const dim3 grid(gx, gy, gz), block(bx, by, bz);
    if (bounded)
        bounded_kernel<<<grid, block, dynamic_shared, stream>>>(y);
    else
        nothing_kernel<<<grid, block, dynamic_shared, stream>>>(y);
    report_error(y, stream);
}
KATA_EXPORT void static_shared(float* y, int dynamic_shared, cudaStream_t stream) {
    static_kernel<<<1, 32, dynamic_shared, stream>>>(y);
    report_error(y, stream);
}
KATA_EXPORT void raised_shared(float* y, int limit, int dynamic_shared, cudaStream_t stream) {
    report(y, 3, cudaFuncSetAttribute(nothing_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, limit), stream);
    cudaGetLastError();
    nothing_kernel<<<1, 32, dynamic_shared, stream>>>(y);
    report_error(y, stream);
}
KATA_EXPORT void cooperative(float* y, int blocks, int threads, cudaStream_t stream) {
    void* arguments[] = {&y};
    report(
        y, 3,
        cudaLaunchCooperativeKernel((const void*)nothing_kernel, dim3(blocks), dim3(threads), arguments, 0, stream),
        stream);
    report_error(y, stream);
}
KATA_EXPORT void asks_for_nothing(float* y, int threads, cudaStream_t stream) {
    for (int i = 0; i < 3; ++i) nothing_kernel<<<1, threads, 0, stream>>>(y);
}
KATA_EXPORT void launches_nothing(float* y, int n, cudaStream_t stream) {}

// ---- instructions

// Every block has its own number of them.
__global__ void instructions_kernel(const float* x, float* y, int n) {
    float sum = 0;
    for (int i = 0; i < 300 * blockIdx.x; ++i) sum += x[(i * threadIdx.x) % 128];
    if (blockIdx.x % 16 == 0) y[threadIdx.x] = x[threadIdx.x];
    if (sum < 0) y[threadIdx.x] = sum;
}
KATA_EXPORT void instructions(const float* x, float* y, int n, cudaStream_t stream) {
    instructions_kernel<<<16, 128, 0, stream>>>(x, y, n);
}
KATA_EXPORT void instructions_in_two_launches(const float* x, float* y, int n, cudaStream_t stream) {
    instructions_kernel<<<16, 128, 0, stream>>>(x, y, n);
    instructions_kernel<<<16, 128, 0, stream>>>(x, y, n);
}

// ---- what stays from call to call

__device__ int calls;
__device__ float remembered[4] = {1, 2, 3, 4};

__global__ void counts_calls_kernel(float* y) {
    y[0] = ++calls;
    y[1] = remembered[2] += 10;
}
KATA_EXPORT void counts_calls(float* y, int n, cudaStream_t stream) {
    counts_calls_kernel<<<1, 1, 0, stream>>>(y);
}
KATA_EXPORT void counts_anew(float* y, int n, cudaStream_t stream) {
    const int none = 0;
    cudaMemcpyToSymbolAsync(calls, &none, sizeof none, 0, cudaMemcpyHostToDevice, stream);
    counts_calls_kernel<<<1, 1, 0, stream>>>(y);
}
