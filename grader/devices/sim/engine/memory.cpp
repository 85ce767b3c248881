#include "memory.h"

#include <algorithm>
#include <new>

namespace sim {

namespace {
constexpr u64 ALIGNMENT = 256;
}

Window& Memory::add(u64 bytes, u64 offset, Use use, std::string name, u32 itemsize) {
    // A call's buffers lie where those of the call before did: whoever remembers addresses meets them again.
    const bool buffer = use == Use::input || use == Use::output;
    const auto gap = buffer ? std::find(windows_.begin(), windows_.end(), nullptr) : windows_.end();
    const size_t slot = size_t(gap - windows_.begin());
    if (slot >= WINDOWS) throw std::bad_alloc();
    auto window = std::make_unique<Window>();
    window->base = GLOBAL_ORIGIN + (u64(slot) << WINDOW_SHIFT) + WINDOW_MIDDLE + offset;
    window->bytes = bytes;
    window->use = use;
    window->name = std::move(name);
    window->itemsize = itemsize;
    if (slot == windows_.size()) windows_.emplace_back();
    windows_[slot] = std::move(window);
    return *windows_[slot];
}

Window& Memory::map(u64 bytes, u64 offset, Use use, std::string name, u32 itemsize, const u8* external) {
    Window& window = add(bytes, offset, use, std::move(name), itemsize);
    window.data = const_cast<u8*>(external);  // never written: the window is not writable
    window.writable = false;
    return window;
}

Window& Memory::allocate(u64 bytes, u64 offset, Use use, std::string name, u32 itemsize, bool initialised) {
    auto data = std::unique_ptr<u8[]>(new u8[bytes + offset % ALIGNMENT + ALIGNMENT]());
    std::unique_ptr<u8[]> shadow;
    if (!initialised) shadow.reset(new u8[bytes + 1]());
    Window& window = add(bytes, offset, use, std::move(name), itemsize);
    const u64 address = reinterpret_cast<u64>(data.get());
    window.data = data.get() + (ALIGNMENT - address % ALIGNMENT) % ALIGNMENT + offset % ALIGNMENT;
    window.shadow = shadow.get();
    window.owned_data = std::move(data);
    window.owned_shadow = std::move(shadow);
    return window;
}

void Memory::release(Window& window) {
    window.freed = true;
    window.data = window.shadow = nullptr;
    window.owned_data.reset();
    window.owned_shadow.reset();
}

void Memory::end_call(size_t windows) {
    for (size_t slot = windows; slot < windows_.size(); ++slot) {
        const Window* window = windows_[slot].get();
        if (window && (window->use != Use::allocation || window->freed)) windows_[slot].reset();
    }
    while (windows_.size() > windows && !windows_.back()) windows_.pop_back();
}

}  // namespace sim
