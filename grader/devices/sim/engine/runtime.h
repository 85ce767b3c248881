// runtime: the types of the CUDA runtime's interface, as nvcc 13's host code
// passes them
#pragma once
#include <cstddef>

#include "scalar.h"

#define SIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace sim {

struct Dim3 {
    u32 x, y, z;
};

struct LaunchAttribute {  // cudaLaunchAttribute
    static constexpr u32 COOPERATIVE = 2, CLUSTER = 4, DEPENDENT = 6;
    u32 id, pad;
    u32 value[16];
};
static_assert(sizeof(LaunchAttribute) == 72, "cudaLaunchAttribute of CUDA 13");

struct LaunchConfig {  // cudaLaunchConfig_t
    Dim3 grid, block;
    size_t dynamic_shared;
    void* stream;
    const LaunchAttribute* attributes;
    u32 attribute_count;
};

// cudaDeviceProp of CUDA 13; the fields between those that are filled in stay
// zero.
struct DeviceProperties {
    char name[256];
    char uuid[16];
    char luid[8];
    u32 luid_mask;
    size_t total_global;
    size_t shared_per_block;
    int registers_per_block, warp_size;
    size_t memory_pitch;
    int threads_per_block, threads_dim[3], grid_size[3];
    size_t total_constant;
    int major, minor;
    size_t texture_alignment, texture_pitch_alignment;
    int multiprocessors, integrated, can_map_host;
    int textures_and_surfaces[39];
    size_t surface_alignment;
    int concurrent_kernels, ecc, pci_bus, pci_device, pci_domain, tcc, async_engines, unified_addressing;
    int memory_bus_width, l2_size, persisting_l2, threads_per_multiprocessor, stream_priorities, global_l1, local_l1;
    size_t shared_per_multiprocessor;
    int registers_per_multiprocessor, managed, multi_board, board_group, host_atomics, pageable, concurrent_managed,
        preemption, host_registered, cooperative;
    size_t shared_optin;
    int pageable_tables, direct_managed, blocks_per_multiprocessor, access_window;
    size_t reserved_shared;
    int rest[76];
};
static_assert(
    offsetof(DeviceProperties, multiprocessors) == 384 && offsetof(DeviceProperties, l2_size) == 596 &&
        sizeof(DeviceProperties) == 1008,
    "cudaDeviceProp of CUDA 13");

struct FunctionAttributes {  // cudaFuncAttributes
    size_t shared, constant, local;
    int threads, registers, ptx_version, binary_version, cache_mode, dynamic_shared, carveout;
    int rest[23];
};

}  // namespace sim
