// What a launcher asks of the CUDA runtime, and launches that need all of their blocks at once.
#include "kata.cuh"
#include <cooperative_groups.h>
#include <cuda_profiler_api.h>

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
    cudaMallocManaged(&both, 64);  // managed
}
KATA_EXPORT void resets(const float* x, float* y, int n, cudaStream_t stream) {
    cudaDeviceReset();  // resets
}

KATA_EXPORT void reaches_the_host(const float* x, float* y, int n, cudaStream_t stream) {
    void *host = nullptr, *device = nullptr;
    cudaHostAlloc(&host, 64, cudaHostAllocMapped);
    cudaHostGetDevicePointer(&device, host, 0);  // reaches_the_host
}
KATA_EXPORT void allocates_in_a_graph(const float* x, float* y, int n, cudaStream_t stream) {
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    void* scratch = nullptr;
    cudaMallocAsync(&scratch, 64, stream);
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream, &graph);
}
KATA_EXPORT void graph_in_a_graph(const float* x, float* y, int n, cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&executable, graph, 0);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    cudaGraphLaunch(executable, stream);  // graph_in_a_graph
    cudaStreamEndCapture(stream, &graph);
}

// ---- what the runtime says of addresses, and what changes no result

KATA_EXPORT void addresses(const float* x, float* y, int n, cudaStream_t stream) {
    void *host = nullptr, *host_alloc = nullptr, *device = nullptr;
    static float registered[16], plain = 0;
    cudaMallocHost(&host, 64);
    cudaHostAlloc(&host_alloc, 64, cudaHostAllocDefault);
    cudaMalloc(&device, 64);
    cudaHostRegister(registered, sizeof registered, cudaHostRegisterDefault);
    const void* asked[] = {
        x,      y + n - 1, static_cast<char*>(device) + 63, static_cast<char*>(host) + 63, host_alloc, registered + 3,
        &plain, nullptr};
    cudaPointerAttributes attributes;
    int at = 0;
    for (const void* pointer : asked) {
        cudaPointerGetAttributes(&attributes, pointer);
        report(y, at++, float(attributes.type), stream);
    }
    report(y, at++, cudaHostUnregister(registered) == cudaSuccess, stream);
    report(y, at++, cudaHostUnregister(registered) == cudaErrorHostMemoryNotRegistered, stream);
    cudaPointerGetAttributes(&attributes, registered);
    report(y, at++, float(attributes.type), stream);
    cudaFreeHost(host);
    report(y, at++, cudaFreeHost(host) == cudaErrorInvalidValue, stream);
    cudaLaunchAttributeValue window = {};
    window.accessPolicyWindow.base_ptr = y;
    window.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    int priority = 1;
    report(y, at++, cudaStreamSetAttribute(stream, cudaLaunchAttributeAccessPolicyWindow, &window), stream);
    report(y, at++, cudaStreamGetPriority(stream, &priority) + priority, stream);
    report(y, at++, cudaProfilerStart() + cudaProfilerStop(), stream);
    cudaGetLastError();
}

// ---- texture objects of linear memory

template <class T>
static cudaTextureObject_t texture_of(
    const void* from, size_t bytes, cudaTextureReadMode how = cudaReadModeElementType) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = const_cast<void*>(from);
    resource.res.linear.desc = cudaCreateChannelDesc<T>();
    resource.res.linear.sizeInBytes = bytes;
    cudaTextureDesc description = {};
    description.readMode = how;
    cudaTextureObject_t texture = 0;
    cudaCreateTextureObject(&texture, &resource, &description, nullptr);
    return texture;
}
struct OfBytes {
    cudaTextureObject_t four_floats, bytes, signed_bytes, fractions, shorts;
};
__global__ void textures_kernel(cudaTextureObject_t texture, OfBytes of, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 7 && i < n) y[i] = tex1Dfetch<float>(texture, n - 1 - i);
    const float4 four = tex1Dfetch<float4>(of.four_floats, 1);
    if (i == 0) y[0] = four.x + 10 * four.y + 100 * four.z + 1000 * four.w;
    if (i == 1) y[1] = tex1Dfetch<float>(texture, n) + tex1Dfetch<float>(texture, -1);
    if (i == 2) y[2] = tex1Dfetch<unsigned char>(of.bytes, 3);
    if (i == 3) y[3] = tex1Dfetch<signed char>(of.signed_bytes, 3);
    if (i == 4) y[4] = tex1Dfetch<float>(of.fractions, 3);
    if (i == 5) y[5] = tex1Dfetch<short2>(of.shorts, 0).y;
    if (i == 6) y[6] = tex1Dfetch<unsigned char>(of.bytes, 1 << 20);
}
__global__ void bytes_kernel(unsigned char* bytes) {
    if (threadIdx.x < 4) bytes[threadIdx.x] = 0xf0 + threadIdx.x;
}
KATA_EXPORT void textures(const float* x, float* y, int n, cudaStream_t stream) {
    unsigned char* bytes = nullptr;
    cudaMalloc(&bytes, 4);
    bytes_kernel<<<1, 32, 0, stream>>>(bytes);
    const auto texture = texture_of<float>(x, n * sizeof(float));
    const OfBytes of = {
        texture_of<float4>(x, n * sizeof(float)), texture_of<unsigned char>(bytes, 4),
        texture_of<signed char>(bytes, 4), texture_of<unsigned char>(bytes, 4, cudaReadModeNormalizedFloat),
        texture_of<short2>(bytes, 4)};
    textures_kernel<<<1, n, 0, stream>>>(texture, of, y, n);
    cudaDestroyTextureObject(texture);
}
__global__ void fetches_kernel(cudaTextureObject_t texture, float* y) {
    y[threadIdx.x] = tex1Dfetch<float>(texture, threadIdx.x);  // fetches
}
KATA_EXPORT void fetches_after_the_end_of_the_object(const float* x, float* y, int n, cudaStream_t stream) {
    const auto texture = texture_of<float>(x, n * sizeof(float));
    cudaDestroyTextureObject(texture);
    fetches_kernel<<<1, 32, 0, stream>>>(texture, y);
}
KATA_EXPORT void fetches_what_nobody_has_written(const float* x, float* y, int n, cudaStream_t stream) {
    float* scratch = nullptr;
    cudaMalloc(&scratch, 64);
    fetches_kernel<<<1, 32, 0, stream>>>(texture_of<float>(scratch, 64), y);
}
KATA_EXPORT void texture_past_the_end(const float* x, float* y, int n, cudaStream_t stream) {
    fetches_kernel<<<1, 32, 0, stream>>>(texture_of<float>(x, (n + 1) * sizeof(float)), y);
}

// ---- malloc in kernels

struct Node {
    Node* next;
    float value;
};
__global__ void lists_kernel(const float* x, float* y, int n) {
    Node* list = nullptr;
    for (int i = threadIdx.x; i < n; i += blockDim.x) list = new Node{list, x[i]};
    float sum = 0;
    while (list) {
        Node* const done = list;
        sum += done->value;
        list = done->next;
        delete done;
    }
    y[threadIdx.x] = sum;
}
__device__ float* kept;
__global__ void keep_kernel(const float* x) {
    if (threadIdx.x == 0) kept = static_cast<float*>(malloc(32 * sizeof(float)));
    __syncthreads();
    kept[threadIdx.x] = x[threadIdx.x];
}
__global__ void use_kernel(float* y) {
    y[32 + threadIdx.x] = kept[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) free(kept);
    if (threadIdx.x == 0) y[64] = malloc(1 << 20) == nullptr;
}
KATA_EXPORT void allocations(const float* x, float* y, int n, cudaStream_t stream) {
    cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 16);
    lists_kernel<<<1, 32, 0, stream>>>(x, y, n);
    keep_kernel<<<1, 32, 0, stream>>>(x);
    lists_kernel<<<1, 32, 0, stream>>>(x, y, n);
    use_kernel<<<1, 32, 0, stream>>>(y);
}
__global__ void uses_freed_kernel(float* y) {
    float* const mine = static_cast<float*>(malloc(16));
    mine[1] = 1;
    free(mine);
    y[threadIdx.x] = mine[1];  // uses_freed
}
__global__ void frees_twice_kernel(float* y) {
    float* const mine = static_cast<float*>(malloc(16));
    free(mine);
    free(mine);  // frees_twice
}
__global__ void reads_beyond_kernel(float* y) {
    float* const mine = static_cast<float*>(malloc(16));
    for (int i = 0; i < 4; ++i) mine[i] = 1;
    y[threadIdx.x] = mine[4];  // reads_beyond
}
KATA_EXPORT void uses_freed(const float* x, float* y, int n, cudaStream_t s) {
    uses_freed_kernel<<<1, 32, 0, s>>>(y);
}
KATA_EXPORT void frees_twice(const float* x, float* y, int n, cudaStream_t s) {
    frees_twice_kernel<<<1, 32, 0, s>>>(y);
}
KATA_EXPORT void reads_beyond(const float* x, float* y, int n, cudaStream_t s) {
    reads_beyond_kernel<<<1, 32, 0, s>>>(y);
}
