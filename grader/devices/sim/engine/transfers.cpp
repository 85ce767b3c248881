// transfers: allocations, copies and fills that the host asks for
#include <algorithm>

#include "device.h"

namespace sim {

int Device::allocate(void** pointer, u64 bytes) {
    if (bytes > card_.global_bytes) return fail(OUT_OF_MEMORY);
    try {
        const std::string name = "cudaMalloc #" + std::to_string(++call_.allocations);
        *pointer =
            bytes ? reinterpret_cast<void*>(memory.allocate(bytes, 0, AllocationKind::cuda_malloc, name, 0, false).base)
                  : nullptr;
    } catch (const std::bad_alloc&) {
        return fail(OUT_OF_MEMORY);
    }
    return SUCCESS;
}

int Device::release(void* pointer) {
    if (!pointer) return SUCCESS;
    Allocation* allocation = is_device_address(pointer) ? memory.find(reinterpret_cast<u64>(pointer)) : nullptr;
    if (!allocation || allocation->freed || allocation->kind != AllocationKind::cuda_malloc ||
        allocation->base != reinterpret_cast<u64>(pointer))
        return fail(INVALID_VALUE);
    memory.release(*allocation);
    return SUCCESS;
}

Allocation* Device::range(const char* what, const void* pointer, u64 bytes, const char* verb) {
    const u64 address = reinterpret_cast<u64>(pointer);
    Allocation* allocation = memory.find(address);
    std::string message;
    if (!allocation || allocation->freed) {
        message = std::string(what) + " " + verb + " " + plural(bytes, "byte") + " where no buffer is";
    } else if (
        address < allocation->base || address - allocation->base > allocation->bytes ||
        allocation->bytes - (address - allocation->base) < bytes) {
        message = std::string(what) + " " + verb + " " + plural(bytes, "byte") + " at byte " +
                  std::to_string(s64(address - allocation->base)) + " of " + allocation->name + ", which has " +
                  plural(allocation->bytes, "byte");
    }
    if (message.empty()) return allocation;
    Finding finding = without_place(FindingKind::out_of_bounds, message);
    if (allocation) finding.buffer = allocation->name;
    keep(finding);
    return nullptr;
}

int Device::copy(const char* what, void* to, const void* from, u64 bytes) {
    if (call_.dead) return fail(ILLEGAL_ADDRESS);
    if (bytes == 0) return SUCCESS;
    Allocation *target = nullptr, *origin = nullptr;
    if (is_device_address(to) && !(target = range(what, to, bytes, "writes"))) return fail(INVALID_VALUE);
    if (is_device_address(from) && !(origin = range(what, from, bytes, "reads"))) return fail(INVALID_VALUE);
    if (target && target->kind == AllocationKind::input) {
        Finding finding = without_place(
            FindingKind::modified_input, std::string(what) + " writes " + target->name + ", which is an input");
        finding.buffer = target->name;
        keep(finding);
        return fail(INVALID_VALUE);
    }
    watch.note(what, reinterpret_cast<u64>(to), bytes);
    const u64 write_at = target ? reinterpret_cast<u64>(to) - target->base : 0;
    const u64 read_at = origin ? reinterpret_cast<u64>(from) - origin->base : 0;
    std::memmove(target ? target->data + write_at : to, origin ? origin->data + read_at : from, bytes);
    const u8* shadow = origin && origin->shadow ? origin->shadow + read_at : nullptr;
    if (target && target->shadow && shadow)
        std::memmove(target->shadow + write_at, shadow, bytes);
    else if (target && target->shadow)
        std::memset(target->shadow + write_at, 1, bytes);
    if (!target && shadow && std::count(shadow, shadow + bytes, 0)) {
        Finding finding = without_place(
            FindingKind::uninitialised, std::string(what) + " reads " + plural(bytes, "byte") + " of " + origin->name +
                                            ", not all of which were written");
        finding.buffer = origin->name;
        keep(finding);
    }
    return SUCCESS;
}

int Device::fill(const char* what, void* to, int value, u64 bytes) {
    if (call_.dead) return fail(ILLEGAL_ADDRESS);
    if (bytes == 0) return SUCCESS;
    if (!is_device_address(to)) return fail(INVALID_VALUE);
    Allocation* target = range(what, to, bytes, "writes");
    if (!target) return fail(INVALID_VALUE);
    if (!target->writable) {
        Finding finding = without_place(
            FindingKind::modified_input, std::string(what) + " writes " + target->name + ", which is an input");
        finding.buffer = target->name;
        keep(finding);
        return fail(INVALID_VALUE);
    }
    const u64 at = reinterpret_cast<u64>(to) - target->base;
    watch.note(what, reinterpret_cast<u64>(to), bytes);
    std::memset(target->data + at, value, bytes);
    if (target->shadow) std::memset(target->shadow + at, 1, bytes);
    return SUCCESS;
}

}  // namespace sim
