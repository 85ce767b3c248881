#include "rows.h"

#include <algorithm>

#include "device.h"
#include "graphs.h"
#include "runtime.h"

namespace sim {

namespace {

constexpr u64 PITCH =
    512;  // cudaDeviceProp::texturePitchAlignment is smaller; the H200's cudaMallocPitch rounds to this

u64 extent(u64 pitch, u64 width, u64 height) {
    return height ? pitch * (height - 1) + width : 0;
}

int copy_now(const char* what, Rows<void*> to, Rows<const void*> from, u64 width, u64 height) {
    for (u64 row = 0; row < height; ++row) {
        u8* target = static_cast<u8*>(to.first) + row * to.pitch;
        const int error =
            Device::get().copy(what, target, static_cast<const u8*>(from.first) + row * from.pitch, width);
        if (error) return error;
    }
    return SUCCESS;
}

int fill_now(const char* what, Rows<void*> to, int value, u64 width, u64 height) {
    for (u64 row = 0; row < height; ++row)
        if (const int error = Device::get().fill(what, static_cast<u8*>(to.first) + row * to.pitch, value, width))
            return error;
    return SUCCESS;
}

}  // namespace

int copy_rows(
    const char* what, Rows<void*> to, Rows<const void*> from, u64 width, u64 height, void* stream, bool waits) {
    Device& device = Device::get();
    if (height > 1 && std::min(to.pitch, from.pitch) < width) return device.fail(INVALID_VALUE);
    const u32 sides = (is_device_address(to.first) ? 0 : RuntimeCall::TO_HOST) |
                      (is_device_address(from.first) ? 0 : RuntimeCall::FROM_HOST);
    RuntimeCall call{"copy", what, stream, nullptr, sides, to.first, from.first, width * height};
    call.flags |= waits && sides ? RuntimeCall::WAITS : 0;
    call.to_extent = extent(to.pitch, width, height);
    call.from_extent = extent(from.pitch, width, height);
    return run_or_capture(stream, waits, [=](const void* on) mutable {
        call.stream = on;
        Device::get().runtime_calls.note(call);
        return copy_now(what, to, from, width, height);
    });
}

int fill_rows(const char* what, Rows<void*> to, int value, u64 width, u64 height, void* stream) {
    if (height > 1 && to.pitch < width) return Device::get().fail(INVALID_VALUE);
    RuntimeCall call{"fill", what, stream, nullptr, 0, to.first, nullptr, width * height};
    call.to_extent = extent(to.pitch, width, height);
    return run_or_capture(stream, false, [=](const void* on) mutable {
        call.stream = on;
        Device::get().runtime_calls.note(call);
        return fill_now(what, to, value, width, height);
    });
}

}  // namespace sim

using namespace sim;

SIM_EXPORT int cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
    if (const int error = stop_captures()) return Device::get().fail(error);
    *pitch = (width + PITCH - 1) / PITCH * PITCH;
    if (height && *pitch > Device::get().card().global_bytes / height) return Device::get().fail(OUT_OF_MEMORY);
    return Device::get().allocate(pointer, *pitch * height);
}
SIM_EXPORT int cudaMemcpy2D(
    void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int) {
    return copy_rows("cudaMemcpy2D", {to, to_pitch}, {from, from_pitch}, width, height, nullptr, true);
}
SIM_EXPORT int cudaMemcpy2DAsync(
    void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int, void* stream) {
    return copy_rows("cudaMemcpy2DAsync", {to, to_pitch}, {from, from_pitch}, width, height, stream, false);
}
SIM_EXPORT int cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
    return fill_rows("cudaMemset2D", {to, pitch}, value, width, height, nullptr);
}
SIM_EXPORT int cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, void* stream) {
    return fill_rows("cudaMemset2DAsync", {to, pitch}, value, width, height, stream);
}
