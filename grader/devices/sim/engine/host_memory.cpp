// host_memory: memory of the host that the CUDA runtime gives or knows, and what it says of addresses
//
// A kernel cannot reach it: device addresses are not host addresses. A copy can, as from any memory of the host.
#include <cstdlib>
#include <map>

#include "device.h"
#include "runtime.h"

using namespace sim;

namespace {

enum class MemoryType : int { unregistered, host, device };  // cudaMemoryType

struct PointerAttributes {  // cudaPointerAttributes
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[8];
};
static_assert(sizeof(PointerAttributes) == 88, "cudaPointerAttributes of CUDA 13");

std::map<const u8*, size_t> pinned;  // bytes of each range

bool is_pinned(const void* pointer) {
    const u8* at = static_cast<const u8*>(pointer);
    auto after = pinned.upper_bound(at);
    return after != pinned.begin() && at < std::prev(after)->first + std::prev(after)->second;
}

int fail(int error) {
    return Device::get().fail(error);
}

}  // namespace

SIM_EXPORT int cudaMallocHost(void** pointer, size_t bytes) {
    *pointer = std::calloc(bytes ? bytes : 1, 1);
    if (!*pointer) return fail(OUT_OF_MEMORY);
    pinned[static_cast<u8*>(*pointer)] = bytes;
    return SUCCESS;
}
SIM_EXPORT int cudaHostAlloc(void** pointer, size_t bytes, u32) {
    return cudaMallocHost(pointer, bytes);
}
SIM_EXPORT int cudaFreeHost(void* pointer) {
    if (!pointer) return SUCCESS;
    if (!pinned.erase(static_cast<u8*>(pointer))) return fail(INVALID_VALUE);
    std::free(pointer);
    return SUCCESS;
}
SIM_EXPORT int cudaHostRegister(void* pointer, size_t bytes, u32) {
    if (!pointer || !bytes) return fail(INVALID_VALUE);
    if (is_pinned(pointer)) return fail(HOST_MEMORY_ALREADY_REGISTERED);
    pinned[static_cast<u8*>(pointer)] = bytes;
    return SUCCESS;
}
SIM_EXPORT int cudaHostUnregister(void* pointer) {
    return pinned.erase(static_cast<u8*>(pointer)) ? SUCCESS : fail(HOST_MEMORY_NOT_REGISTERED);
}
SIM_EXPORT int cudaHostGetFlags(u32* flags, void* pointer) {
    *flags = 0;
    return is_pinned(pointer) ? SUCCESS : fail(INVALID_VALUE);
}
SIM_EXPORT int cudaHostGetDevicePointer(void**, void*, u32) {
    return Device::get().unsupported(
        "cudaHostGetDevicePointer: kernels that reach memory of the host are not supported by the simulator; use "
        "cudaMalloc and cudaMemcpy");
}
SIM_EXPORT int cudaPointerGetAttributes(PointerAttributes* out, const void* pointer) {
    *out = {};
    const Allocation* allocation =
        is_device_address(pointer) ? Device::get().memory.find(reinterpret_cast<u64>(pointer)) : nullptr;
    const u64 offset = allocation ? reinterpret_cast<u64>(pointer) - allocation->base : 0;
    void* same = const_cast<void*>(pointer);
    if (allocation && !allocation->freed && offset < allocation->bytes) {
        out->type = int(MemoryType::device);
        out->device_pointer = same;
    } else if (is_pinned(pointer)) {
        out->type = int(MemoryType::host);
        out->device_pointer = out->host_pointer = same;
    } else {
        out->device = -2;  // cudaInvalidDeviceId
        out->host_pointer = is_device_address(pointer) ? nullptr : same;
    }
    return SUCCESS;
}

// ---- advice, which changes no result

SIM_EXPORT int cudaMemAdvise(const void*, size_t, int, u64) {
    return SUCCESS;
}
SIM_EXPORT int cudaMemPrefetchAsync(const void*, size_t, u64, u32, void*) {
    return SUCCESS;
}
SIM_EXPORT int cudaProfilerStart() {
    return SUCCESS;
}
SIM_EXPORT int cudaProfilerStop() {
    return SUCCESS;
}
