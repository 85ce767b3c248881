#include "memory.h"

#include <algorithm>
#include <new>

namespace sim {

namespace {
constexpr u64 ALIGNMENT = 256;

Zeroed zeroed(u64 bytes) {
    Zeroed made(static_cast<u8*>(std::calloc(bytes, 1)));
    if (!made) throw std::bad_alloc();
    return made;
}

}  // namespace

Allocation& Memory::add(u64 bytes, u64 offset, AllocationKind kind, std::string name, u32 itemsize) {
    // A call's buffers lie where those of the call before did: whoever remembers addresses meets them again.
    const bool buffer = kind == AllocationKind::input || kind == AllocationKind::output;
    const auto gap = buffer ? std::find(allocations_.begin(), allocations_.end(), nullptr) : allocations_.end();
    const size_t slot = size_t(gap - allocations_.begin());
    if (slot >= WINDOWS) throw std::bad_alloc();
    auto allocation = std::make_unique<Allocation>();
    allocation->base = GLOBAL_ORIGIN + (u64(slot) << WINDOW_SHIFT) + WINDOW_MIDDLE + offset;
    allocation->bytes = bytes;
    allocation->kind = kind;
    allocation->name = std::move(name);
    allocation->itemsize = itemsize;
    if (slot == allocations_.size()) allocations_.emplace_back();
    allocations_[slot] = std::move(allocation);
    return *allocations_[slot];
}

Allocation& Memory::map(
    u64 bytes, u64 offset, AllocationKind kind, std::string name, u32 itemsize, const u8* external) {
    Allocation& allocation = add(bytes, offset, kind, std::move(name), itemsize);
    allocation.data = const_cast<u8*>(external);  // never written: the allocation is not writable
    allocation.writable = false;
    return allocation;
}

Allocation& Memory::allocate(
    u64 bytes, u64 offset, AllocationKind kind, std::string name, u32 itemsize, bool initialised) {
    Zeroed data = zeroed(bytes + offset % ALIGNMENT + ALIGNMENT);
    Zeroed shadow;
    if (!initialised) shadow = zeroed(bytes + 1);
    Allocation& allocation = add(bytes, offset, kind, std::move(name), itemsize);
    const u64 address = reinterpret_cast<u64>(data.get());
    allocation.data = data.get() + (ALIGNMENT - address % ALIGNMENT) % ALIGNMENT + offset % ALIGNMENT;
    allocation.shadow = shadow.get();
    allocation.owned_data = std::move(data);
    allocation.owned_shadow = std::move(shadow);
    return allocation;
}

void Memory::release(Allocation& allocation) {
    allocation.freed = true;
    allocation.data = allocation.shadow = nullptr;
    allocation.owned_data.reset();
    allocation.owned_shadow.reset();
}

void Memory::end_call(size_t first) {
    for (size_t slot = first; slot < allocations_.size(); ++slot) {
        const Allocation* allocation = allocations_[slot].get();
        if (allocation && (allocation->kind != AllocationKind::cuda_malloc || allocation->freed))
            allocations_[slot].reset();
    }
    while (allocations_.size() > first && !allocations_.back()) allocations_.pop_back();
}

}  // namespace sim
