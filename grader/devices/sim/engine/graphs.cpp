#include "graphs.h"

#include <algorithm>

#include "runtime.h"

namespace sim {

namespace {

std::vector<std::unique_ptr<Capture>> captures;
std::set<Graph*> graphs, executables;

bool is_legacy(const void* stream) {
    return reinterpret_cast<u64>(stream) <= 1;
}

bool any_captured() {
    return !captures.empty();
}

Capture* captured_with(void* stream) {
    for (auto& capture : captures)
        if (capture->streams.count(stream)) return capture.get();
    return nullptr;
}

Graph* known(const std::set<Graph*>& list, void* handle) {
    const auto found = list.find(static_cast<Graph*>(handle));
    return found == list.end() ? nullptr : *found;
}

int destroy(std::set<Graph*>& list, void* handle) {
    Graph* found = known(list, handle);
    if (!found) return Device::get().fail(INVALID_VALUE);
    list.erase(found);
    delete found;
    return SUCCESS;
}

}  // namespace

// The legacy default stream waits for the others, as it cannot for what has not run.
Captured capture_on(void* stream) {
    if (Capture* found = captured_with(stream)) return {found, found->broken ? CAPTURE_INVALIDATED : SUCCESS};
    if (!any_captured() || !is_legacy(stream)) return {};
    for (auto& capture : captures) capture->broken = true;
    return {nullptr, CAPTURE_IMPLICIT};
}

int capture(Capture& into, void* stream, Work work) {
    into.streams[stream].insert(into.graph.work.size());
    into.graph.work.push_back(std::move(work));
    return SUCCESS;
}

// The arguments are read now; the kernel runs with them whenever the graph is launched.
int capture_launch(
    Capture& into, void* stream, const void* kernel, const Geometry& geometry, void** arguments, bool cooperative) {
    Device& device = Device::get();
    const Function* function = device.module.function(kernel);
    const Program* program = function ? device.program(*function) : nullptr;
    if (!program) return device.fail(function ? NO_KERNEL_IMAGE : INVALID_DEVICE_FUNCTION);
    std::vector<std::vector<u8>> held;
    for (size_t i = 0; i < program->parameters.size(); ++i) {
        const u8* from = static_cast<const u8*>(arguments[i]);
        held.emplace_back(from, from + program->parameters[i].bytes);
    }
    return capture(into, stream, [=](const void* on) mutable {
        std::vector<void*> pointers;
        for (auto& argument : held) pointers.push_back(argument.data());
        return Device::get().launch(kernel, geometry, pointers.data(), on, cooperative);
    });
}

int run_or_capture(void* stream, bool waits, Work work) {
    const Captured captured = capture_on(stream);
    if (captured.error) return Device::get().fail(captured.error);
    if (!captured.graph) return work(stream);
    if (waits) captured.graph->broken = true;
    return waits ? Device::get().fail(CAPTURE_UNSUPPORTED) : capture(*captured.graph, stream, std::move(work));
}

bool capture_record(void* stream, void* event) {
    for (auto& capture : captures) capture->events.erase(event);
    Capture* capture = captured_with(stream);
    if (capture) capture->events[event] = capture->streams[stream];
    return capture != nullptr;
}

// A stream that waits for a captured event is captured from then on.
bool capture_wait(void* stream, void* event) {
    for (auto& capture : captures) {
        const auto found = capture->events.find(event);
        if (found == capture->events.end()) continue;
        capture->streams[stream].insert(found->second.begin(), found->second.end());
        return true;
    }
    return false;
}

int stop_captures() {
    bool stopped = false;
    for (auto& capture : captures) {
        stopped |= !capture->relaxed;
        capture->broken |= !capture->relaxed;
    }
    return stopped ? CAPTURE_UNSUPPORTED : SUCCESS;
}

int stop_captures_for_wait(void* stream) {
    if (Capture* capture = captured_with(stream)) {
        capture->broken = true;
        return CAPTURE_UNSUPPORTED;
    }
    return stream ? SUCCESS : stop_captures();
}

}  // namespace sim

using namespace sim;

SIM_EXPORT int cudaStreamBeginCapture(void* stream, int mode) {
    constexpr int RELAXED = 2;  // cudaStreamCaptureModeRelaxed
    if (is_legacy(stream)) return Device::get().fail(CAPTURE_UNSUPPORTED);
    if (captured_with(stream)) return Device::get().fail(ILLEGAL_STATE);
    auto made = std::make_unique<Capture>();
    made->origin = stream;
    made->relaxed = mode == RELAXED;
    made->streams[stream];
    captures.push_back(std::move(made));
    return SUCCESS;
}
SIM_EXPORT int cudaStreamEndCapture(void* stream, void** graph) {
    *graph = nullptr;
    const auto at = std::find_if(captures.begin(), captures.end(), [&](auto& c) { return c->streams.count(stream); });
    if (at == captures.end()) return Device::get().fail(ILLEGAL_STATE);
    if ((*at)->origin != stream) return Device::get().fail(CAPTURE_UNMATCHED);
    const std::unique_ptr<Capture> ended = std::move(*at);
    captures.erase(at);
    if (ended->broken) return Device::get().fail(CAPTURE_INVALIDATED);
    if (ended->streams[stream].size() < ended->graph.work.size()) return Device::get().fail(CAPTURE_UNJOINED);
    auto* made = new Graph(std::move(ended->graph));
    graphs.insert(made);
    *graph = made;
    return SUCCESS;
}
SIM_EXPORT int cudaStreamIsCapturing(void* stream, int* status) {
    const Capture* capture = captured_with(stream);
    *status = !capture ? 0 : capture->broken ? 2 : 1;  // cudaStreamCaptureStatus
    return SUCCESS;
}
SIM_EXPORT int cudaGraphInstantiate(void** executable, void* graph, u64) {
    const Graph* from = known(graphs, graph);
    if (!from) return Device::get().fail(INVALID_VALUE);
    auto* made = new Graph(*from);
    executables.insert(made);
    *executable = made;
    return SUCCESS;
}
SIM_EXPORT int cudaGraphInstantiateWithFlags(void** executable, void* graph, u64 flags) {
    return cudaGraphInstantiate(executable, graph, flags);
}
SIM_EXPORT int cudaGraphUpload(void* executable, void*) {
    return known(executables, executable) ? SUCCESS : Device::get().fail(INVALID_VALUE);
}
SIM_EXPORT int cudaGraphLaunch(void* executable, void* stream) {
    Graph* graph = known(executables, executable);
    if (!graph) return Device::get().fail(INVALID_VALUE);
    if (any_captured())
        return Device::get().unsupported(
            "cudaGraphLaunch: a graph inside a captured stream is not supported by the simulator");
    for (Work& work : graph->work)
        if (const int error = work(stream)) return error;
    return SUCCESS;
}
SIM_EXPORT int cudaGraphExecDestroy(void* executable) {
    return destroy(executables, executable);
}
SIM_EXPORT int cudaGraphDestroy(void* graph) {
    return destroy(graphs, graph);
}
