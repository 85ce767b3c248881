#include "heap.h"

#include <cstring>

namespace sim {

namespace {

constexpr u64 ALIGNMENT = 16;
constexpr u64 GAP = 16;   // between two, which no kernel writes: reads beyond the first are found
constexpr u64 TIMES = 4;  // so much of the limit is given in one kernel, all in all

}  // namespace

void Heap::begin(Memory& memory, u64 limit) {
    if (area_ && area_->bytes < TIMES * limit && taken_.empty()) {
        memory.release(*area_);
        area_ = nullptr;
    }
    if (!area_)
        area_ = &memory.allocate(TIMES * limit, 0, AllocationKind::cuda_malloc, "the memory of malloc", 0, false);
    limit_ = limit;
    if (!taken_.empty()) return;
    std::memset(area_->shadow, 0, next_);
    next_ = in_use_ = 0;
}

void Heap::forget() {
    area_ = nullptr;
    taken_.clear();
    next_ = in_use_ = 0;
}

u64 Heap::take(u64 bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const u64 room = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + GAP;
    if (bytes > limit_ || in_use_ + bytes > limit_ || next_ + room > area_->bytes) return 0;
    const u64 offset = next_;
    taken_[offset] = bytes;
    next_ += room;
    in_use_ += bytes;
    return area_->base + offset;
}

bool Heap::give(u64 address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = taken_.find(address - area_->base);
    if (found == taken_.end()) return false;
    std::memset(area_->shadow + found->first, 0, found->second);
    in_use_ -= found->second;
    taken_.erase(found);
    return true;
}

}  // namespace sim
