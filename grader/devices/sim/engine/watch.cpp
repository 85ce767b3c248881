#include "watch.h"

#include "block.h"
#include "operation.h"

namespace sim {

void Watch::add(std::string key, u64 address, u32 bytes) {
    places_.push_back({std::move(key), address, bytes, false, {}});
}

void Watch::note(const Warp& warp, Mask mask, const u64* a, u32 bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Watched& place : places_) {
        each_lane(mask, [&](int l) {
            if (a[l] >= place.address + place.bytes || a[l] + bytes <= place.address) return;
            place.writer = warp.block->site(warp, warp.here, l);
            place.written = true;
        });
    }
}

void Watch::note(const char* what, u64 address, u64 bytes) {
    for (Watched& place : places_) {
        if (address >= place.address + place.bytes || address + bytes <= place.address) continue;
        place.writer = {};
        place.writer.kernel = what;
        place.written = true;
    }
}

std::string Watch::json() const {
    std::string text = "{";
    for (const Watched& place : places_) {
        if (!place.written) continue;
        text += (text.size() > 1 ? ",\"" : "\"") + place.key + "\":" + sim::json(place.writer);
    }
    return text + "}";
}

}  // namespace sim
