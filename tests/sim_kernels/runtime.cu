// What a launcher asks of the CUDA runtime, and launches that need all of their blocks at once.
#include "kata.cuh"
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__device__ float grid_sum;
__constant__ float scale[4];

// y[i] = x[n - 1 - i] + 1, in two steps with the whole grid between them
__global__ void grid_sync_kernel(const float* x, float* y, float* between, int n) {
    auto grid = cg::this_grid();
    for (int i = grid.thread_rank(); i < n; i += grid.size()) between[i] = x[i] + 1;
    grid.sync();
    for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = between[n - 1 - i];
    grid.sync();
}
static void launch_grid_sync(const float* x, float* y, int n, int blocks, cudaStream_t stream) {
    float* between;
    cudaMallocAsync(&between, n * sizeof(float), stream);
    void* arguments[] = {&x, &y, &between, &n};
    cudaLaunchCooperativeKernel(grid_sync_kernel, dim3(blocks), dim3(64), arguments, 0, stream);
    cudaFreeAsync(between, stream);
}
KATA_EXPORT void grid_sync(const float* x, float* y, int n, cudaStream_t stream) {
    launch_grid_sync(x, y, n, 6, stream);
}
KATA_EXPORT void many_blocks(const float* x, float* y, int n, cudaStream_t stream) {
    int each = 0, multiprocessors = 0, can = 0;
    cudaDeviceGetAttribute(&can, cudaDevAttrCooperativeLaunch, 0);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, grid_sync_kernel, 64, 0);
    if (can) launch_grid_sync(x, y, n, each * multiprocessors / 8, stream);
}
KATA_EXPORT void too_many_blocks(const float* x, float* y, int n, cudaStream_t stream) {
    launch_grid_sync(x, y, n, 132 * 32 + 1, stream);
}
KATA_EXPORT void launch_ex(const float* x, float* y, int n, cudaStream_t stream) {
    float* between;
    cudaMalloc(&between, n * sizeof(float));
    cudaLaunchAttribute attributes[1] = {};
    attributes[0].id = cudaLaunchAttributeCooperative;
    attributes[0].val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(5);
    config.blockDim = dim3(32);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, grid_sync_kernel, x, y, between, n);
    cudaFree(between);
}
KATA_EXPORT void clusters(const float* x, float* y, int n, cudaStream_t stream) {
    cudaLaunchAttribute attributes[1] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {2, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(4);
    config.blockDim = dim3(32);
    config.attrs = attributes;
    config.numAttrs = 1;
    float* none = nullptr;
    cudaLaunchKernelEx(&config, grid_sync_kernel, x, y, none, n);
}

// grid.sync() of a launch that is not cooperative
KATA_EXPORT void not_cooperative(const float* x, float* y, int n, cudaStream_t stream) {
    grid_sync_kernel<<<1, 64, 0, stream>>>(x, y, y, n);
}

__global__ void twice_kernel(float* y, float sum) {
    *y = 2 * sum;
}
__global__ void scale_kernel(const float* x, float* y, int n) {
    const int i = threadIdx.x;
    if (i < n) y[i] = x[i] * scale[i % 4];
    if (i == 0) grid_sum = x[0] + x[1];
}
KATA_EXPORT void symbols(const float* x, float* y, int n, cudaStream_t stream) {
    const float factors[4] = {1, 2, 3, 4};
    cudaMemcpyToSymbol(scale, factors, sizeof factors);
    scale_kernel<<<1, 128, 0, stream>>>(x, y, n);
    float sum = 0;
    cudaMemcpyFromSymbol(&sum, grid_sum, sizeof sum);
    void* address = nullptr;
    cudaGetSymbolAddress(&address, grid_sum);
    cudaMemcpyAsync(y, address, sizeof sum, cudaMemcpyDeviceToDevice, stream);
    twice_kernel<<<1, 1, 0, stream>>>(y + 1, sum);
}

__global__ void __launch_bounds__(128) bounded_kernel(const float* x, float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
}
KATA_EXPORT void over_bounds(const float* x, float* y, int n, cudaStream_t stream) {
    bounded_kernel<<<1, 256, 0, stream>>>(x, y, n);
}

// ---- pointers to functions

__device__ __noinline__ float twice(float x) {
    return 2 * x;
}
__device__ __noinline__ float thrice(float x) {
    return 3 * x;
}
using Operator = float (*)(float);
__device__ Operator operators[3] = {twice, thrice, nullptr};
struct Figure {
    __device__ virtual float area(float x) const = 0;
};
struct Square : Figure {
    __device__ float area(float x) const override { return x * x; }
};
struct Strip : Figure {
    __device__ float area(float x) const override { return 7 * x; }
};

__global__ void pointers_kernel(const float* x, float* y, int n, int kinds) {
    const int i = threadIdx.x;
    y[i] = operators[i % kinds](x[i]);  // null_function
}
KATA_EXPORT void pointers(const float* x, float* y, int n, cudaStream_t stream) {
    pointers_kernel<<<1, 128, 0, stream>>>(x, y, n, 2);
}
KATA_EXPORT void null_function(const float* x, float* y, int n, cudaStream_t stream) {
    pointers_kernel<<<1, 128, 0, stream>>>(x, y, n, 3);
}
__global__ void virtual_functions_kernel(const float* x, float* y, int n) {
    const int i = threadIdx.x;
    Square square;
    Strip strip;
    const Figure* figure = i % 3 ? static_cast<Figure*>(&square) : &strip;
    y[i] = figure->area(x[i]);
}
KATA_EXPORT void virtual_functions(const float* x, float* y, int n, cudaStream_t stream) {
    virtual_functions_kernel<<<1, 128, 0, stream>>>(x, y, n);
}

__global__ void report_kernel(float* y, float value) {
    *y = value;
}
static void report(float* y, int i, float value, cudaStream_t stream) {
    report_kernel<<<1, 1, 0, stream>>>(y + i, value);
}

KATA_EXPORT void queries(const float* x, float* y, int n, cudaStream_t stream) {
    int devices = 0, blocks = 0, potential = 0, threads = 0;
    cudaGetDeviceCount(&devices);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded_kernel, 128, 40 << 10);
    cudaOccupancyMaxPotentialBlockSize(&potential, &threads, bounded_kernel, 0, 0);
    report(y, 0, devices, stream);
    report(y, 1, blocks, stream);
    report(y, 2, threads, stream);
    cudaStream_t own;
    cudaEvent_t begin, end;
    cudaStreamCreate(&own);
    cudaEventCreate(&begin);
    cudaEventCreateWithFlags(&end, cudaEventDefault);
    float milliseconds = -1;
    report(y, 3, cudaEventElapsedTime(&milliseconds, begin, end) == cudaErrorInvalidResourceHandle, stream);
    cudaStreamSynchronize(stream);
    cudaEventRecord(begin, own);
    bounded_kernel<<<1, 32, 0, own>>>(x, y + 8, 32);
    cudaEventRecord(end, own);
    cudaEventSynchronize(end);
    cudaEventElapsedTime(&milliseconds, begin, end);
    report(y, 4, milliseconds > 0 && milliseconds < 10000, stream);
    report(y, 5, cudaStreamSynchronize(own), stream);
    cudaEventDestroy(begin);
    cudaStreamDestroy(own);
    cudaGetLastError();
    report(y, 6, cudaStreamDestroy(own) == cudaErrorInvalidResourceHandle, stream);
    cudaMemPool_t pool;
    cudaDeviceGetDefaultMemPool(&pool, 0);
    void* memory = nullptr;
    report(y, 7, cudaMallocFromPoolAsync(&memory, 64, pool, stream) == cudaSuccess && memory != nullptr, stream);
}
KATA_EXPORT void managed(const float* x, float* y, int n, cudaStream_t stream) {
    float* both = nullptr;
    cudaMallocManaged(&both, 64);
}
KATA_EXPORT void resets(const float* x, float* y, int n, cudaStream_t stream) {
    cudaDeviceReset();
}
