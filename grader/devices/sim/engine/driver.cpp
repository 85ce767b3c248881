// driver: what a launcher may call of the CUDA driver: tensor maps, the names of errors, the version
//
// cuda.h of CUDA 13.0. A launcher gets at these functions by cudaGetDriverEntryPoint, or links them.
#include <cstring>

#include "device.h"
#include "runtime.h"
#include "tensor_map.h"

using namespace sim;

namespace {

constexpr int VERSION = 13000, FIRST_WITH_MAPS = 12000;
constexpr u64 MAP_ALIGNMENT = 64, MAP_BYTES = 128;

struct ErrorName {
    int error;
    const char *name, *text;
};
constexpr ErrorName ERRORS[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

// What cudaDriverEntryPointQueryResult says.
constexpr int FOUND = 0, NO_SYMBOL = 1, VERSION_TOO_OLD = 2;

int write_map(void* map, const TensorArguments& arguments) {
    if (!map || reinterpret_cast<u64>(map) % MAP_ALIGNMENT) return INVALID_VALUE;
    const TensorMap made = encode(arguments);
    std::memset(map, 0, MAP_BYTES);
    std::memcpy(map, &made, sizeof made);
    return made.refusal ? INVALID_VALUE : SUCCESS;
}

}  // namespace

SIM_EXPORT int cuDriverGetVersion(int* version) {
    *version = VERSION;
    return SUCCESS;
}

SIM_EXPORT int cuGetErrorName(int error, const char** name) {
    for (auto& known : ERRORS)
        if (known.error == error) return *name = known.name, SUCCESS;
    *name = nullptr;
    return INVALID_VALUE;
}

SIM_EXPORT int cuGetErrorString(int error, const char** text) {
    for (auto& known : ERRORS)
        if (known.error == error) return *text = known.text, SUCCESS;
    *text = nullptr;
    return INVALID_VALUE;
}

SIM_EXPORT int cuTensorMapEncodeTiled(
    void* map, u32 type, u32 rank, void* base, const u64* dims, const u64* strides, const u32* box,
    const u32* element_strides, u32 interleave, u32 swizzle, u32 promotion, u32 fill) {
    TensorArguments arguments = {
        type,      rank, reinterpret_cast<u64>(base), dims, strides, box, element_strides, interleave, swizzle,
        promotion, fill};
    MapNumbers numbers;
    Device& device = Device::get();
    if (device.host_changes.change_map(device.next_map(), arguments, numbers)) return write_map(map, arguments);
    return write_map(
        map, {type, rank, reinterpret_cast<u64>(base), dims, strides, box, element_strides, interleave, swizzle,
              promotion, fill});
}

SIM_EXPORT int cuTensorMapEncodeIm2col(
    void* map, u32 type, u32 rank, void* base, const u64* dims, const u64* strides, const int* lower, const int* upper,
    u32 channels, u32 pixels, const u32* element_strides, u32 interleave, u32 swizzle, u32 promotion, u32 fill) {
    if (!lower || !upper) return INVALID_VALUE;
    const u32 box[] = {channels, pixels};
    return write_map(
        map, {type, rank, reinterpret_cast<u64>(base), dims, strides, box, element_strides, interleave, swizzle,
              promotion, fill, lower, upper});
}

namespace {

struct EntryPoint {
    const char* name;
    int since;
    void* function;
};
const EntryPoint ENTRY_POINTS[] = {
    {"cuTensorMapEncodeTiled", FIRST_WITH_MAPS, reinterpret_cast<void*>(cuTensorMapEncodeTiled)},
    {"cuTensorMapEncodeIm2col", FIRST_WITH_MAPS, reinterpret_cast<void*>(cuTensorMapEncodeIm2col)},
    {"cuGetErrorString", 6000, reinterpret_cast<void*>(cuGetErrorString)},
    {"cuGetErrorName", 6000, reinterpret_cast<void*>(cuGetErrorName)},
    {"cuDriverGetVersion", 2020, reinterpret_cast<void*>(cuDriverGetVersion)},
};

// Every other function of the driver is one that the simulator does not have, and is said to be.
int entry_point(const char* symbol, void** function, int version, int* status) {
    *function = nullptr;
    const auto answer = [&](int found) { return status ? *status = found : found; };
    if (version > VERSION) return Device::get().fail(INVALID_VALUE);
    for (const EntryPoint& known : ENTRY_POINTS) {
        if (std::strcmp(known.name, symbol) != 0) continue;
        if (answer(version < known.since ? VERSION_TOO_OLD : FOUND) == FOUND) *function = known.function;
        return SUCCESS;
    }
    answer(NO_SYMBOL);
    return Device::get().unsupported(
        "cudaGetDriverEntryPoint: the driver's function " + std::string(symbol) + " is not supported by the simulator");
}

}  // namespace

SIM_EXPORT int cudaGetDriverEntryPointByVersion(const char* symbol, void** function, u32 version, u64, int* status) {
    return entry_point(symbol, function, int(version), status);
}
SIM_EXPORT int cudaGetDriverEntryPoint(const char* symbol, void** function, u64, int* status) {
    return entry_point(symbol, function, VERSION, status);
}
