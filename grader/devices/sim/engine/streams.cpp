// streams: streams, events, pools and host functions of the CUDA runtime
//
// Everything happens at once and in order: a stream is a name, an event a time on
// the host's clock, a pool the card's own memory. What orders streams is noted for the grader.
#include <chrono>
#include <cstring>
#include <set>

#include "device.h"
#include "graphs.h"
#include "runtime.h"

using namespace sim;

namespace {

using Time = std::chrono::steady_clock::time_point;

struct Event {
    bool recorded = false;
    Time time;
};

// Handles are told from garbage by their address.
template <class T>
struct Handles {
    std::set<T*> known;

    int create(void** handle) {
        T* made = new T();
        known.insert(made);
        *handle = made;
        return SUCCESS;
    }
    T* find(void* handle) const {
        const auto found = known.find(static_cast<T*>(handle));
        return found == known.end() ? nullptr : *found;
    }
    int destroy(void* handle) {
        T* found = find(handle);
        if (!found) return Device::get().fail(INVALID_RESOURCE_HANDLE);
        known.erase(found);
        delete found;
        return SUCCESS;
    }
};

struct Stream {
    char name = 0;
};
struct Pool {
    u64 threshold = 0;
};
Handles<Stream> streams;
Handles<Event> events;
Handles<Pool> pools;
Pool default_pool;
constexpr size_t ATTRIBUTE_BYTES = 64;  // of cudaLaunchAttributeValue

int status() {
    return Device::get().status();
}

int bad_handle() {
    return Device::get().fail(INVALID_RESOURCE_HANDLE);
}

// Of a stream; those with a small number are the default ones.
int checked(void* stream, int result = SUCCESS) {
    const bool is_default = reinterpret_cast<u64>(stream) <= 2;
    return is_default || streams.find(stream) ? result : bad_handle();
}

}  // namespace

// ---- streams

// The one that a launcher is given: none of the default ones, so that these can be told from it.
SIM_EXPORT void* sim_stream() {
    static void* stream = nullptr;
    if (!streams.find(stream)) streams.create(&stream);
    return stream;
}

SIM_EXPORT int cudaStreamCreateWithPriority(void** stream, u32 flags, int) {
    const int error = streams.create(stream);
    const u32 noted = flags & 1 ? RuntimeCall::NON_BLOCKING : 0;
    Device::get().runtime_calls.note({"open", "cudaStreamCreate", *stream, nullptr, noted});
    return error;
}
SIM_EXPORT int cudaStreamCreateWithFlags(void** stream, u32 flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
SIM_EXPORT int cudaStreamCreate(void** stream) {
    return cudaStreamCreateWithPriority(stream, 0, 0);
}
SIM_EXPORT int cudaStreamDestroy(void* stream) {
    return streams.destroy(stream);
}
SIM_EXPORT int cudaStreamSynchronize(void* stream) {
    if (const int error = stop_captures_for_wait(stream)) return Device::get().fail(error);
    Device::get().runtime_calls.note({"await_stream", "cudaStreamSynchronize", stream});
    return checked(stream, status());
}
// The stream has always done all of its work.
SIM_EXPORT int cudaStreamQuery(void* stream) {
    return cudaStreamSynchronize(stream);
}
SIM_EXPORT int cudaStreamWaitEvent(void* stream, void* event, u32) {
    if (!events.find(event)) return bad_handle();
    if (capture_wait(stream, event)) return checked(stream);
    if (Capture* capturing = capture_on(stream).graph) {
        capturing->broken = true;
        return Device::get().fail(CAPTURE_ISOLATION);
    }
    Device::get().runtime_calls.note({"wait", "cudaStreamWaitEvent", stream, event});
    return checked(stream);
}
SIM_EXPORT int cudaStreamGetFlags(void* stream, u32* flags) {
    *flags = 0;
    return checked(stream);
}
SIM_EXPORT int cudaStreamGetPriority(void* stream, int* priority) {
    *priority = 0;
    return checked(stream);
}
// Attributes say where data is cached, or how streams share the card.
SIM_EXPORT int cudaStreamSetAttribute(void* stream, int, const void*) {
    return checked(stream);
}
SIM_EXPORT int cudaStreamGetAttribute(void* stream, int, void* value) {
    std::memset(value, 0, ATTRIBUTE_BYTES);
    return checked(stream);
}
SIM_EXPORT int cudaStreamCopyAttributes(void* to, void* from) {
    return checked(to, checked(from));
}
SIM_EXPORT int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return SUCCESS;
}
SIM_EXPORT int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
    const int error = run_or_capture(stream, false, [=](const void* on) {
        Device::get().runtime_calls.note({"host", "cudaLaunchHostFunc", on});
        function(data);
        return SUCCESS;
    });
    return checked(stream, error);
}
SIM_EXPORT int cudaStreamAddCallback(void* stream, void (*function)(void*, int, void*), void* data, u32) {
    if (capture_on(stream).graph) return Device::get().fail(stop_captures_for_wait(stream));
    Device::get().runtime_calls.note({"host", "cudaStreamAddCallback", stream});
    function(stream, status(), data);
    return checked(stream);
}

// ---- events

SIM_EXPORT int cudaEventCreate(void** event) {
    return events.create(event);
}
SIM_EXPORT int cudaEventCreateWithFlags(void** event, u32) {
    return events.create(event);
}
SIM_EXPORT int cudaEventDestroy(void* event) {
    return events.destroy(event);
}
SIM_EXPORT int cudaEventRecord(void* event, void* stream) {
    Event* found = events.find(event);
    if (!found) return bad_handle();
    if (capture_record(stream, event)) return checked(stream);
    *found = {true, std::chrono::steady_clock::now()};
    Device::get().runtime_calls.note({"record", "cudaEventRecord", stream, event});
    return checked(stream);
}
SIM_EXPORT int cudaEventRecordWithFlags(void* event, void* stream, u32) {
    return cudaEventRecord(event, stream);
}
SIM_EXPORT int cudaEventSynchronize(void* event) {
    if (!events.find(event)) return bad_handle();
    if (const int error = stop_captures_for_wait(nullptr)) return Device::get().fail(error);
    Device::get().runtime_calls.note({"await_event", "cudaEventSynchronize", nullptr, event});
    return status();
}
SIM_EXPORT int cudaEventQuery(void* event) {
    return cudaEventSynchronize(event);
}
SIM_EXPORT int cudaEventElapsedTime(float* milliseconds, void* first, void* last) {
    const Event *from = events.find(first), *to = events.find(last);
    if (!from || !to || !from->recorded || !to->recorded) return bad_handle();
    *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
    return SUCCESS;
}
SIM_EXPORT int cudaEventElapsedTime_v2(float* milliseconds, void* first, void* last) {
    return cudaEventElapsedTime(milliseconds, first, last);
}

// ---- pools

SIM_EXPORT int cudaDeviceGetDefaultMemPool(void** pool, int) {
    *pool = &default_pool;
    return SUCCESS;
}
SIM_EXPORT int cudaDeviceGetMemPool(void** pool, int device) {
    return cudaDeviceGetDefaultMemPool(pool, device);
}
SIM_EXPORT int cudaDeviceSetMemPool(int, void*) {
    return SUCCESS;
}
SIM_EXPORT int cudaMemPoolCreate(void** pool, const void*) {
    return pools.create(pool);
}
SIM_EXPORT int cudaMemPoolDestroy(void* pool) {
    return pools.destroy(pool);
}
SIM_EXPORT int cudaMemPoolTrimTo(void*, size_t) {
    return SUCCESS;
}
SIM_EXPORT int cudaMemPoolSetAttribute(void*, int, void*) {
    return SUCCESS;
}
SIM_EXPORT int cudaMallocFromPoolAsync(void** pointer, size_t bytes, void* pool, void* stream) {
    if (pool != &default_pool && !pools.find(pool)) return Device::get().fail(INVALID_VALUE);
    if (capture_on(stream).graph)
        return Device::get().unsupported(
            "cudaMallocFromPoolAsync: memory that belongs to a captured graph is not supported by the simulator");
    const int error = checked(stream);
    return error ? error : Device::get().allocate(pointer, bytes);
}
