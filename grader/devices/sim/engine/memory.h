// memory: device addresses -> host bytes, with what may be done there
//
// Every allocation has a window of 64 GiB to itself and lies in its middle, so
// that no index that a learner gets wrong by accident lands in another one.
// Device addresses are no host addresses: the host faults when it follows one.
#pragma once
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "scalar.h"

namespace sim {

constexpr u64 CODE_ORIGIN = u64(1) << 48;  // what pointers to functions hold, a step for each function
constexpr u64 CODE_STEP = 16;
constexpr u64 SHARED_ORIGIN = u64(1) << 49;  // generic addresses of shared memory
constexpr u64 LOCAL_ORIGIN = u64(1) << 50;   // and of local memory
constexpr u64 SPACE_SIZE = u64(1) << 32;
constexpr u64 GLOBAL_ORIGIN = u64(1) << 52;
constexpr int WINDOW_SHIFT = 36;
constexpr u64 WINDOW_MIDDLE = u64(1) << (WINDOW_SHIFT - 1);
constexpr u32 WINDOWS = 1 << 14;

struct Freed {
    void operator()(u8* bytes) const { std::free(bytes); }
};

// Bytes that are 0. A page that is never touched costs nothing: a variable of a module may be large and unused.
using Zeroed = std::unique_ptr<u8[], Freed>;

enum class AllocationKind : u8 { input, output, cuda_malloc, variable, constant, parameter };

struct Allocation {
    u64 base = 0;
    u64 bytes = 0;
    u8* data = nullptr;
    u8* shadow = nullptr;  // 1 where initialised; null: all of it is
    AllocationKind kind = AllocationKind::cuda_malloc;
    bool writable = true;
    bool freed = false;
    std::string name;
    u32 itemsize = 1;
    Zeroed owned_data, owned_shadow;
};

class Memory {
 public:
    // `data` may be null: the allocation then owns its bytes, which begin
    // uninitialised unless `initial` gives them.
    Allocation& map(u64 bytes, u64 offset, AllocationKind kind, std::string name, u32 itemsize, const u8* external);
    Allocation& allocate(u64 bytes, u64 offset, AllocationKind kind, std::string name, u32 itemsize, bool initialised);

    // The allocation around a device address, mapped or freed; null where there is none, or was one in an earlier call.
    Allocation* find(u64 address) const {
        const u64 slot = (address - GLOBAL_ORIGIN) >> WINDOW_SHIFT;
        return slot < allocations_.size() ? allocations_[slot].get() : nullptr;
    }
    size_t size() const { return allocations_.size(); }
    void release(Allocation& allocation);  // stays known as freed
    // Ends a call: of the allocations made since there were `first`, only those of cudaMalloc stay that were not freed.
    void end_call(size_t first);
    void clear() { allocations_.clear(); }

 private:
    Allocation& add(u64 bytes, u64 offset, AllocationKind kind, std::string name, u32 itemsize);
    std::vector<std::unique_ptr<Allocation>> allocations_;
};

}  // namespace sim
