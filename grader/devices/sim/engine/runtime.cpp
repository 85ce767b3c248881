// runtime: the CUDA runtime that a learner's launcher calls
//
// The host half of a kata is linked without a CUDA runtime; these symbols are loaded before it. Everything is
// synchronous; streams.cpp has streams and events. A function that is missing here keeps the kata from loading, by
// name.
#include "runtime.h"

#include <algorithm>
#include <cstdio>

#include "device.h"
#include "graphs.h"
#include "occupancy.h"
#include "rows.h"

namespace sim {

namespace {

struct ErrorName {
    int error;
    const char* name;
    const char* text;
};
constexpr ErrorName ERRORS[] = {
    {SUCCESS, "cudaSuccess", "no error"},
    {INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument"},
    {OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
    {INVALID_CONFIGURATION, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {INVALID_SYMBOL, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {INVALID_DEVICE_POINTER, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {INVALID_DEVICE_FUNCTION, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {NO_KERNEL_IMAGE, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
    {INVALID_RESOURCE_HANDLE, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {ILLEGAL_ADDRESS, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {LAUNCH_OUT_OF_RESOURCES, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {COOPERATIVE_LAUNCH_TOO_LARGE, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {INVALID_CLUSTER_SIZE, "cudaErrorInvalidClusterSize", "invalid cluster size"},
    {NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported"},
    {ILLEGAL_STATE, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {HOST_MEMORY_ALREADY_REGISTERED, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {HOST_MEMORY_NOT_REGISTERED, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {CAPTURE_UNSUPPORTED, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {CAPTURE_UNMATCHED, "cudaErrorStreamCaptureUnmatched", "stream capture not initiated on this stream"},
    {CAPTURE_UNJOINED, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {CAPTURE_ISOLATION, "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"},
    {CAPTURE_IMPLICIT, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
};

struct Configuration {
    Dim3 grid, block;
    size_t shared;
    void* stream;
};
std::vector<Configuration>& configurations() {
    static thread_local std::vector<Configuration> stack;
    return stack;
}

Geometry geometry_of(Dim3 grid, Dim3 block, size_t shared) {
    return {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared};
}

int fail(int error) {
    return Device::get().fail(error);
}

int launch(
    const void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared, void* stream, bool cooperative = false,
    const u32* cluster = nullptr, bool dependent = false) {
    Device& device = Device::get();
    Geometry geometry = geometry_of(grid, block, shared);
    if (cluster) std::copy(cluster, cluster + 3, geometry.cluster);
    geometry.dependent = dependent;
    if (const Captured captured = capture_on(stream); captured.error)
        return fail(captured.error);
    else if (captured.graph)
        return capture_launch(*captured.graph, stream, kernel, geometry, arguments, cooperative);
    return device.launch(kernel, geometry, arguments, stream, cooperative);
}

void* symbol_address(const void* symbol, size_t offset) {
    const Allocation* allocation = Device::get().variable(symbol);
    return allocation ? reinterpret_cast<void*>(allocation->base + offset) : nullptr;
}

int occupancy(int* blocks, const void* kernel, int threads, size_t dynamic_shared) {
    Device& device = Device::get();
    const Function* function = device.module.function(kernel);
    const Program* program = function ? device.program(*function) : nullptr;
    if (!program) return fail(INVALID_DEVICE_FUNCTION);
    if (threads <= 0) return fail(INVALID_VALUE);
    *blocks = int(resident_blocks(device.tell_card(), *program, u64(threads), dynamic_shared));
    return SUCCESS;
}

int copy(const char* what, void* to, const void* from, size_t bytes, void* stream, bool waits) {
    const bool inside = is_device_address(to) && is_device_address(from);  // the host's memory has no known end
    if (inside) bytes = Device::get().host_changes.bytes(what, bytes);
    return copy_rows(what, {to, bytes}, {from, bytes}, bytes, 1, stream, waits);
}

int fill(const char* what, void* to, int value, size_t bytes, void* stream) {
    bytes = Device::get().host_changes.bytes(what, bytes);
    return fill_rows(what, {to, bytes}, value, bytes, 1, stream);
}

int allocate(const char* what, void** pointer, size_t bytes) {
    Device& device = Device::get();
    return device.allocate(pointer, device.host_changes.bytes(what, bytes));
}

int copy_to_symbol(
    const char* what, const void* symbol, const void* from, size_t bytes, size_t offset, void* stream, bool waits) {
    void* to = symbol_address(symbol, offset);
    return to ? copy(what, to, from, bytes, stream, waits) : fail(INVALID_SYMBOL);
}

int copy_from_symbol(
    const char* what, void* to, const void* symbol, size_t bytes, size_t offset, void* stream, bool waits) {
    const void* from = symbol_address(symbol, offset);
    return from ? copy(what, to, from, bytes, stream, waits) : fail(INVALID_SYMBOL);
}

int refuse(const char* sentence) {
    return Device::get().unsupported(sentence);
}

}  // namespace

}  // namespace sim

using namespace sim;

// ---- registration, by the constructors of the learner's library

SIM_EXPORT void** __cudaRegisterFatBinary(void*) {
    static void* handle;
    return &handle;
}
SIM_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
SIM_EXPORT void __cudaUnregisterFatBinary(void**) {}
SIM_EXPORT char __cudaInitModule(void**) {
    return 1;
}
SIM_EXPORT void __cudaRegisterFunction(
    void**, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
    Device::get().module.add_function(host, name);
}
SIM_EXPORT void __cudaRegisterVar(void**, char* host, char*, const char* name, int, size_t, int, int) {
    Device::get().module.add_variable(host, name);
}
SIM_EXPORT int __cudaGetKernel(void** kernel, const void* host) {
    *kernel = const_cast<void*>(host);
    return SUCCESS;
}

// ---- launches

SIM_EXPORT u32 __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, void* stream) {
    configurations().push_back({grid, block, shared, stream});
    return 0;
}
SIM_EXPORT int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared, void* stream) {
    if (configurations().empty()) return fail(INVALID_CONFIGURATION);
    const Configuration c = configurations().back();
    configurations().pop_back();
    *grid = c.grid;
    *block = c.block;
    *shared = c.shared;
    *static_cast<void**>(stream) = c.stream;
    return SUCCESS;
}
// What <<<...>>> becomes: nobody sees what this returns.
SIM_EXPORT int __cudaLaunchKernel(void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared, void* stream) {
    const int error = launch(kernel, grid, block, arguments, shared, stream);
    if (error) Device::get().expect_error_check();
    return error;
}
SIM_EXPORT int __cudaLaunchKernel_ptsz(void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared, void* s) {
    return __cudaLaunchKernel(kernel, grid, block, arguments, shared, s);
}
SIM_EXPORT int cudaLaunchKernel(
    const void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared, void* stream) {
    return launch(kernel, grid, block, arguments, shared, stream);
}
SIM_EXPORT int cudaLaunchKernel_ptsz(
    const void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared, void* stream) {
    return launch(kernel, grid, block, arguments, shared, stream);
}
SIM_EXPORT int cudaLaunchKernelExC(const LaunchConfig* c, const void* kernel, void** arguments) {
    bool cooperative = false, dependent = false;
    const u32* cluster = nullptr;
    for (u32 i = 0; i < c->attribute_count; ++i) {
        const LaunchAttribute& attribute = c->attributes[i];
        if (attribute.id == LaunchAttribute::COOPERATIVE) cooperative = attribute.value[0];
        if (attribute.id == LaunchAttribute::CLUSTER) cluster = attribute.value;
        if (attribute.id == LaunchAttribute::DEPENDENT) dependent = attribute.value[0];
    }
    return launch(kernel, c->grid, c->block, arguments, c->dynamic_shared, c->stream, cooperative, cluster, dependent);
}
SIM_EXPORT int cudaLaunchCooperativeKernel(
    const void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared, void* stream) {
    return launch(kernel, grid, block, arguments, shared, stream, true);
}
SIM_EXPORT int cudaFuncSetAttribute(const void* kernel, int attribute, int value) {
    Device& device = Device::get();
    Function* function = device.module.function(kernel);
    if (!function) return fail(INVALID_DEVICE_FUNCTION);
    constexpr int MAX_DYNAMIC_SHARED = 8;  // cudaFuncAttributeMaxDynamicSharedMemorySize
    constexpr int LARGE_CLUSTERS = 14;     // cudaFuncAttributeNonPortableClusterSizeAllowed
    if (attribute == LARGE_CLUSTERS) function->large_clusters = value != 0;
    if (attribute != MAX_DYNAMIC_SHARED) return SUCCESS;
    const Program* program = device.program(*function);
    const u64 fixed = program ? program->static_shared : 0;
    if (value < 0 || u64(value) + fixed > device.card().shared_per_block_optin) return fail(INVALID_VALUE);
    function->dynamic_shared_limit = u64(value);
    return SUCCESS;
}
SIM_EXPORT int cudaFuncGetAttributes(FunctionAttributes* out, const void* kernel) {
    Device& device = Device::get();
    const Function* function = device.module.function(kernel);
    const Program* program = function ? device.program(*function) : nullptr;
    if (!program) return fail(INVALID_DEVICE_FUNCTION);
    *out = {};
    out->shared = program->static_shared;
    out->local = program->local_bytes;
    out->threads = int(program->limits.max_threads);
    out->ptx_version = out->binary_version = device.card().major * 10 + device.card().minor;
    out->dynamic_shared = int(std::max(SHARED_PER_BLOCK - out->shared, function->dynamic_shared_limit));
    return SUCCESS;
}
SIM_EXPORT int cudaFuncSetCacheConfig(const void*, int) {
    return SUCCESS;
}
SIM_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int* blocks, const void* kernel, int threads, size_t shared) {
    return occupancy(blocks, kernel, threads, shared);
}
SIM_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* kernel, int threads, size_t shared, u32) {
    return occupancy(blocks, kernel, threads, shared);
}

SIM_EXPORT int cudaOccupancyMaxActiveClusters(int* clusters, const void* kernel, const LaunchConfig* c) {
    u32 cluster[3] = {1, 1, 1};
    for (u32 i = 0; i < c->attribute_count; ++i)
        if (c->attributes[i].id == LaunchAttribute::CLUSTER) std::copy_n(c->attributes[i].value, 3, cluster);
    int blocks = 0;
    const u64 threads = u64(c->block.x) * c->block.y * c->block.z;
    const int error = occupancy(&blocks, kernel, int(threads), c->dynamic_shared);
    if (error) return error;
    *clusters = int(active_clusters(Device::get().tell_card(), u64(blocks), cluster[0] * cluster[1] * cluster[2]));
    return SUCCESS;
}
SIM_EXPORT int cudaOccupancyMaxPotentialClusterSize(int* size, const void* kernel, const LaunchConfig*) {
    const Function* function = Device::get().module.function(kernel);
    if (!function) return fail(INVALID_DEVICE_FUNCTION);
    *size = function->large_clusters ? 16 : 8;
    return SUCCESS;
}
SIM_EXPORT int cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* kernel, int blocks, int threads) {
    Device& device = Device::get();
    const Function* function = device.module.function(kernel);
    const Program* program = function ? device.program(*function) : nullptr;
    if (!program) return fail(INVALID_DEVICE_FUNCTION);
    *bytes = available_shared(device.tell_card(), *program, u64(std::max(blocks, 0)), u64(std::max(threads, 0)));
    return SUCCESS;
}

// ---- errors

SIM_EXPORT int cudaGetLastError() {
    return Device::get().take_error();
}
SIM_EXPORT int cudaPeekAtLastError() {
    return Device::get().peek_error();
}
SIM_EXPORT const char* cudaGetErrorName(int error) {
    for (auto& known : ERRORS)
        if (known.error == error) return known.name;
    return "cudaErrorUnknown";
}
SIM_EXPORT const char* cudaGetErrorString(int error) {
    for (auto& known : ERRORS)
        if (known.error == error) return known.text;
    return "unknown error";
}

// ---- memory

SIM_EXPORT int cudaMalloc(void** pointer, size_t bytes) {
    const int error = stop_captures();
    return error ? fail(error) : allocate("cudaMalloc", pointer, bytes);
}
SIM_EXPORT int cudaMallocAsync(void** pointer, size_t bytes, void* stream) {
    if (capture_on(stream).graph)
        return refuse("cudaMallocAsync: memory that belongs to a captured graph is not supported by the simulator");
    return allocate("cudaMallocAsync", pointer, bytes);
}
SIM_EXPORT int cudaFree(void* pointer) {
    const int error = stop_captures();
    return error ? fail(error) : Device::get().release(pointer);
}
SIM_EXPORT int cudaFreeAsync(void* pointer, void* stream) {
    if (capture_on(stream).graph)
        return refuse("cudaFreeAsync: memory that belongs to a captured graph is not supported by the simulator");
    return Device::get().release(pointer);
}
SIM_EXPORT int cudaMallocManaged(void**, size_t, u32) {
    return refuse(
        "cudaMallocManaged: memory that host and device share is not supported by the simulator; use cudaMalloc and "
        "cudaMemcpy");
}
SIM_EXPORT void __cudaRegisterManagedVar(void**, void**, char*, const char* name, int, size_t, int, int) {
    Device::get().refuse_managed(name);
}
SIM_EXPORT char __cudaInitManagedRuntime(void**) {
    return 1;
}
SIM_EXPORT int cudaMemcpy(void* to, const void* from, size_t bytes, int) {
    return copy("cudaMemcpy", to, from, bytes, nullptr, true);
}
SIM_EXPORT int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void* stream) {
    return copy("cudaMemcpyAsync", to, from, bytes, stream, false);
}
SIM_EXPORT int cudaMemset(void* to, int value, size_t bytes) {
    return fill("cudaMemset", to, value, bytes, nullptr);
}
SIM_EXPORT int cudaMemsetAsync(void* to, int value, size_t bytes, void* stream) {
    return fill("cudaMemsetAsync", to, value, bytes, stream);
}
SIM_EXPORT int cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, int) {
    return copy_to_symbol("cudaMemcpyToSymbol", symbol, from, bytes, offset, nullptr, true);
}
SIM_EXPORT int cudaMemcpyToSymbolAsync(
    const void* symbol, const void* from, size_t bytes, size_t offset, int, void* stream) {
    return copy_to_symbol("cudaMemcpyToSymbolAsync", symbol, from, bytes, offset, stream, false);
}
SIM_EXPORT int cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, int) {
    return copy_from_symbol("cudaMemcpyFromSymbol", to, symbol, bytes, offset, nullptr, true);
}
SIM_EXPORT int cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, int, void* stream) {
    return copy_from_symbol("cudaMemcpyFromSymbolAsync", to, symbol, bytes, offset, stream, false);
}
SIM_EXPORT int cudaGetSymbolAddress(void** pointer, const void* symbol) {
    *pointer = symbol_address(symbol, 0);
    return *pointer ? SUCCESS : fail(INVALID_SYMBOL);
}
SIM_EXPORT int cudaGetSymbolSize(size_t* bytes, const void* symbol) {
    const Allocation* allocation = Device::get().variable(symbol);
    if (!allocation) return fail(INVALID_SYMBOL);
    *bytes = allocation->bytes;
    return SUCCESS;
}

// ---- the device

SIM_EXPORT int cudaDeviceSynchronize() {
    if (const int error = stop_captures_for_wait(nullptr)) return fail(error);
    Device::get().runtime_calls.note({"await_all", "cudaDeviceSynchronize"});
    return Device::get().status();
}
