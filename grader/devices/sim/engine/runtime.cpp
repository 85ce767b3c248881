// runtime: the CUDA runtime that a learner's launcher calls
//
// The host half of a kata is linked without a CUDA runtime; these symbols are
// loaded before it. Streams and events are in order and everything is
// synchronous. A function that is missing here keeps the kata from loading, by
// name.
#include "runtime.h"

#include <cstdio>
#include <cstdlib>

#include "device.h"

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
    {NO_KERNEL_IMAGE, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
    {INVALID_RESOURCE_HANDLE, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {ILLEGAL_ADDRESS, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {LAUNCH_OUT_OF_RESOURCES, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported"},
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

int launch(const void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared, bool cooperative = false) {
    return Device::get().launch(kernel, geometry_of(grid, block, shared), arguments, cooperative);
}

int fail(int error) {
    return Device::get().fail(error);
}

void* symbol_address(const void* symbol, size_t offset) {
    const Window* window = Device::get().variable(symbol);
    return window ? reinterpret_cast<void*>(window->base + offset) : nullptr;
}

struct Attribute {
    int number;
    u64 (*value)(const Card&);
};
constexpr Attribute ATTRIBUTES[] = {
    // cudaDeviceAttr of driver_types.h
    {1, [](const Card&) -> u64 { return 1024; }},
    {2, [](const Card&) -> u64 { return 1024; }},
    {3, [](const Card&) -> u64 { return 1024; }},
    {4, [](const Card&) -> u64 { return 64; }},
    {5, [](const Card&) -> u64 { return 0x7fffffff; }},
    {6, [](const Card&) -> u64 { return 65535; }},
    {7, [](const Card&) -> u64 { return 65535; }},
    {8, [](const Card&) -> u64 { return SHARED_PER_BLOCK; }},
    {9, [](const Card&) -> u64 { return 65536; }},
    {10, [](const Card&) -> u64 { return 32; }},
    {12, [](const Card&) -> u64 { return 65536; }},
    {13, [](const Card& c) -> u64 { return u64(c.clock_khz); }},
    {16, [](const Card& c) -> u64 { return u64(c.multiprocessors); }},
    {31, [](const Card&) -> u64 { return 1; }},
    {36, [](const Card& c) -> u64 { return u64(c.memory_clock_khz); }},
    {37, [](const Card& c) -> u64 { return u64(c.memory_bus_bits); }},
    {38, [](const Card& c) -> u64 { return u64(c.l2_bytes); }},
    {39, [](const Card& c) -> u64 { return u64(c.threads_per_multiprocessor); }},
    {41, [](const Card&) -> u64 { return 1; }},
    {75, [](const Card& c) -> u64 { return u64(c.major); }},
    {76, [](const Card& c) -> u64 { return u64(c.minor); }},
    {81, [](const Card& c) -> u64 { return c.shared_per_multiprocessor; }},
    {82, [](const Card&) -> u64 { return 65536; }},
    {95, [](const Card&) -> u64 { return 1; }},
    {97, [](const Card& c) -> u64 { return c.shared_per_block_optin; }},
    {106, [](const Card& c) -> u64 { return u64(c.blocks_per_multiprocessor); }},
    {111, [](const Card&) -> u64 { return 1024; }},
    {115, [](const Card&) -> u64 { return 1; }},
};

// How many blocks of a kernel fit on one multiprocessor, by threads and shared
// memory. Registers are not known here.
int resident_blocks(const void* kernel, int threads, size_t dynamic_shared) {
    Device& device = Device::get();
    const Function* function = device.function(kernel);
    const Program* program = function ? device.program(*function) : nullptr;
    if (!program || threads <= 0) return 0;
    const Card& card = device.card();
    const u64 warps = u64(threads + 31) / 32;
    u64 blocks = std::min<u64>(u64(card.blocks_per_multiprocessor), u64(card.threads_per_multiprocessor) / 32 / warps);
    const u64 shared = program->static_shared + dynamic_shared + 1024;  // the system takes 1 KiB of every block
    blocks = std::min(blocks, card.shared_per_multiprocessor / shared);
    return int(blocks);
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
    Device::get().add_function(host, name);
}
SIM_EXPORT void __cudaRegisterVar(void**, char* host, char*, const char* name, int, size_t, int, int) {
    Device::get().add_variable(host, name);
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
SIM_EXPORT int __cudaLaunchKernel(void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared, void*) {
    return launch(kernel, grid, block, arguments, shared);
}
SIM_EXPORT int __cudaLaunchKernel_ptsz(void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared, void*) {
    return launch(kernel, grid, block, arguments, shared);
}
SIM_EXPORT int cudaLaunchKernel(const void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared, void*) {
    return launch(kernel, grid, block, arguments, shared);
}
SIM_EXPORT int cudaLaunchKernel_ptsz(
    const void* kernel, Dim3 grid, Dim3 block, void** arguments, size_t shared, void*) {
    return launch(kernel, grid, block, arguments, shared);
}
SIM_EXPORT int cudaLaunchKernelExC(const LaunchConfig* c, const void* kernel, void** arguments) {
    return launch(kernel, c->grid, c->block, arguments, c->dynamic_shared);
}
SIM_EXPORT int cudaFuncSetAttribute(const void* kernel, int attribute, int value) {
    Device& device = Device::get();
    Function* function = device.function(kernel);
    if (!function) return fail(INVALID_DEVICE_FUNCTION);
    constexpr int MAX_DYNAMIC_SHARED = 8;  // cudaFuncAttributeMaxDynamicSharedMemorySize
    if (attribute != MAX_DYNAMIC_SHARED) return SUCCESS;
    const Program* program = device.program(*function);
    const u64 fixed = program ? program->static_shared : 0;
    if (value < 0 || u64(value) + fixed > device.card().shared_per_block_optin) return fail(INVALID_VALUE);
    function->dynamic_shared_limit = u64(value);
    return SUCCESS;
}
SIM_EXPORT int cudaFuncGetAttributes(FunctionAttributes* out, const void* kernel) {
    Device& device = Device::get();
    const Function* function = device.function(kernel);
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
    *blocks = resident_blocks(kernel, threads, shared);
    return SUCCESS;
}
SIM_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* kernel, int threads, size_t shared, u32) {
    *blocks = resident_blocks(kernel, threads, shared);
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
    return Device::get().allocate(pointer, bytes);
}
SIM_EXPORT int cudaMallocAsync(void** pointer, size_t bytes, void*) {
    return Device::get().allocate(pointer, bytes);
}
SIM_EXPORT int cudaFree(void* pointer) {
    return Device::get().release(pointer);
}
SIM_EXPORT int cudaFreeAsync(void* pointer, void*) {
    return Device::get().release(pointer);
}
SIM_EXPORT int cudaMallocHost(void** pointer, size_t bytes) {
    *pointer = std::calloc(bytes ? bytes : 1, 1);
    return *pointer ? SUCCESS : fail(OUT_OF_MEMORY);
}
SIM_EXPORT int cudaHostAlloc(void** pointer, size_t bytes, u32) {
    return cudaMallocHost(pointer, bytes);
}
SIM_EXPORT int cudaFreeHost(void* pointer) {
    std::free(pointer);
    return SUCCESS;
}
SIM_EXPORT int cudaMemcpy(void* to, const void* from, size_t bytes, int) {
    return Device::get().copy("cudaMemcpy", to, from, bytes);
}
SIM_EXPORT int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void*) {
    return Device::get().copy("cudaMemcpyAsync", to, from, bytes);
}
SIM_EXPORT int cudaMemset(void* to, int value, size_t bytes) {
    return Device::get().fill("cudaMemset", to, value, bytes);
}
SIM_EXPORT int cudaMemsetAsync(void* to, int value, size_t bytes, void*) {
    return Device::get().fill("cudaMemsetAsync", to, value, bytes);
}
SIM_EXPORT int cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, int) {
    void* to = symbol_address(symbol, offset);
    return to ? Device::get().copy("cudaMemcpyToSymbol", to, from, bytes) : fail(INVALID_SYMBOL);
}
SIM_EXPORT int cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset, int, void*) {
    return cudaMemcpyToSymbol(symbol, from, bytes, offset, 0);
}
SIM_EXPORT int cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, int) {
    void* from = symbol_address(symbol, offset);
    return from ? Device::get().copy("cudaMemcpyFromSymbol", to, from, bytes) : fail(INVALID_SYMBOL);
}
SIM_EXPORT int cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, int, void*) {
    return cudaMemcpyFromSymbol(to, symbol, bytes, offset, 0);
}
SIM_EXPORT int cudaGetSymbolAddress(void** pointer, const void* symbol) {
    *pointer = symbol_address(symbol, 0);
    return *pointer ? SUCCESS : fail(INVALID_SYMBOL);
}
SIM_EXPORT int cudaGetSymbolSize(size_t* bytes, const void* symbol) {
    const Window* window = Device::get().variable(symbol);
    if (!window) return fail(INVALID_SYMBOL);
    *bytes = window->bytes;
    return SUCCESS;
}

// ---- streams and events: in order, at once

SIM_EXPORT int cudaStreamCreate(void** stream) {
    static char streams[1 << 16];
    static u32 next = 1;
    *stream = &streams[next++ % sizeof streams];
    return SUCCESS;
}
SIM_EXPORT int cudaStreamCreateWithFlags(void** stream, u32) {
    return cudaStreamCreate(stream);
}
SIM_EXPORT int cudaStreamCreateWithPriority(void** stream, u32, int) {
    return cudaStreamCreate(stream);
}
SIM_EXPORT int cudaStreamDestroy(void*) {
    return SUCCESS;
}
SIM_EXPORT int cudaStreamSynchronize(void*) {
    return Device::get().peek_error();
}
SIM_EXPORT int cudaStreamQuery(void*) {
    return SUCCESS;
}
SIM_EXPORT int cudaStreamWaitEvent(void*, void*, u32) {
    return SUCCESS;
}
SIM_EXPORT int cudaEventCreate(void** event) {
    return cudaStreamCreate(event);
}
SIM_EXPORT int cudaEventCreateWithFlags(void** event, u32) {
    return cudaStreamCreate(event);
}
SIM_EXPORT int cudaEventDestroy(void*) {
    return SUCCESS;
}
SIM_EXPORT int cudaEventRecord(void*, void*) {
    return SUCCESS;
}
SIM_EXPORT int cudaEventSynchronize(void*) {
    return SUCCESS;
}
SIM_EXPORT int cudaEventQuery(void*) {
    return SUCCESS;
}
SIM_EXPORT int cudaEventElapsedTime(float* milliseconds, void*, void*) {
    *milliseconds = 0;
    return SUCCESS;
}
SIM_EXPORT int cudaDeviceSynchronize() {
    return Device::get().peek_error();
}

// ---- the card

SIM_EXPORT int cudaGetDeviceCount(int* count) {
    *count = 1;
    return SUCCESS;
}
SIM_EXPORT int cudaGetDevice(int* device) {
    *device = 0;
    return SUCCESS;
}
SIM_EXPORT int cudaSetDevice(int device) {
    return device == 0 ? SUCCESS : fail(101);
}
SIM_EXPORT int cudaDeviceGetAttribute(int* value, int attribute, int) {
    for (auto& known : ATTRIBUTES) {
        if (known.number != attribute) continue;
        *value = int(known.value(Device::get().card()));
        return SUCCESS;
    }
    *value = 0;
    return SUCCESS;
}
SIM_EXPORT int cudaGetDeviceProperties(DeviceProperties* p, int) {
    const Card& card = Device::get().card();
    *p = {};
    std::snprintf(p->name, sizeof p->name, "%s", card.name);
    p->total_global = card.global_bytes;
    p->shared_per_block = SHARED_PER_BLOCK;
    p->registers_per_block = p->registers_per_multiprocessor = 65536;
    p->warp_size = 32;
    p->threads_per_block = p->threads_dim[0] = p->threads_dim[1] = 1024;
    p->threads_dim[2] = 64;
    p->grid_size[0] = 0x7fffffff;
    p->grid_size[1] = p->grid_size[2] = 65535;
    p->total_constant = 65536;
    p->major = card.major;
    p->minor = card.minor;
    p->multiprocessors = card.multiprocessors;
    p->concurrent_kernels = p->unified_addressing = p->cooperative = 1;
    p->memory_bus_width = card.memory_bus_bits;
    p->l2_size = card.l2_bytes;
    p->threads_per_multiprocessor = card.threads_per_multiprocessor;
    p->shared_per_multiprocessor = card.shared_per_multiprocessor;
    p->shared_optin = card.shared_per_block_optin;
    p->blocks_per_multiprocessor = card.blocks_per_multiprocessor;
    p->reserved_shared = 1024;
    return SUCCESS;
}
SIM_EXPORT int cudaDeviceSetLimit(int, size_t) {
    return SUCCESS;
}
SIM_EXPORT int cudaDeviceSetCacheConfig(int) {
    return SUCCESS;
}
SIM_EXPORT int cudaCtxResetPersistingL2Cache() {
    return SUCCESS;
}
SIM_EXPORT int cudaMemGetInfo(size_t* free_bytes, size_t* total) {
    *free_bytes = *total = Device::get().card().global_bytes;
    return SUCCESS;
}
SIM_EXPORT int cudaRuntimeGetVersion(int* version) {
    *version = 13000;
    return SUCCESS;
}
SIM_EXPORT int cudaDriverGetVersion(int* version) {
    return cudaRuntimeGetVersion(version);
}
