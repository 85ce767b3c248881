// card: what the CUDA runtime says of the device, and what may be set there
#include <cstdio>

#include "device.h"
#include "runtime.h"

using namespace sim;

namespace {

struct Attribute {
    int number;
    u64 (*value)(const Card&);
    bool shrinks = false;  // is less on a small card
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
    {16, [](const Card& c) -> u64 { return u64(c.multiprocessors); }, true},
    {31, [](const Card&) -> u64 { return 1; }},
    {36, [](const Card& c) -> u64 { return u64(c.memory_clock_khz); }},
    {37, [](const Card& c) -> u64 { return u64(c.memory_bus_bits); }},
    {38, [](const Card& c) -> u64 { return u64(c.l2_bytes); }},
    {39, [](const Card& c) -> u64 { return u64(c.threads_per_multiprocessor); }},
    {41, [](const Card&) -> u64 { return 1; }},
    {75, [](const Card& c) -> u64 { return u64(c.major); }},
    {76, [](const Card& c) -> u64 { return u64(c.minor); }},
    {81, [](const Card& c) -> u64 { return c.shared_per_multiprocessor; }, true},
    {82, [](const Card&) -> u64 { return 65536; }},
    {95, [](const Card&) -> u64 { return 1; }},
    {97, [](const Card& c) -> u64 { return c.shared_per_block_optin; }, true},
    {106, [](const Card& c) -> u64 { return u64(c.blocks_per_multiprocessor); }},
    {111, [](const Card& c) -> u64 { return c.reserved_shared; }},
    {115, [](const Card&) -> u64 { return 1; }},
};

}  // namespace

SIM_EXPORT int cudaGetDeviceCount(int* count) {
    *count = 1;
    return SUCCESS;
}
SIM_EXPORT int cudaGetDevice(int* device) {
    *device = 0;
    return SUCCESS;
}
SIM_EXPORT int cudaSetDevice(int device) {
    return device == 0 ? SUCCESS : Device::get().fail(INVALID_DEVICE);
}
SIM_EXPORT int cudaDeviceGetAttribute(int* value, int attribute, int) {
    for (auto& known : ATTRIBUTES) {
        if (known.number != attribute) continue;
        Device& device = Device::get();
        *value = int(known.value(known.shrinks ? device.tell_card() : device.card()));
        return SUCCESS;
    }
    *value = 0;
    return SUCCESS;
}
SIM_EXPORT int cudaGetDeviceProperties(DeviceProperties* p, int) {
    const Card& card = Device::get().tell_card();
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
    p->reserved_shared = card.reserved_shared;
    return SUCCESS;
}
SIM_EXPORT int cudaDeviceReset() {
    return Device::get().unsupported(
        "cudaDeviceReset: the device and its buffers belong to the grader; do not reset it");
}
SIM_EXPORT int cudaDeviceSetLimit(int limit, size_t bytes) {
    return Device::get().set_limit(limit, bytes);
}
SIM_EXPORT int cudaDeviceGetLimit(size_t* bytes, int limit) {
    *bytes = Device::get().limit(limit);
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
