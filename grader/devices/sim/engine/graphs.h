// graphs: what streams capture, and graphs of it that are launched
//
// A graph is a list of what its streams were asked to do, in that order, which is one of the orders that it allows. Its
// parts run, and are noted for the grader, on the stream that it is launched on.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "device.h"

namespace sim {

using Work = std::function<int(const void* stream)>;

struct Graph {
    std::vector<Work> work;
};

// Which of a graph's parts are done before what a stream does next.
using Before = std::set<size_t>;

struct Capture {
    void* origin = nullptr;  // the stream that it began on, and ends on
    bool relaxed = false;    // lets the thread do what other captures forbid
    bool broken = false;     // something was asked for that no graph can hold
    Graph graph;
    std::map<void*, Before> streams;
    std::map<void*, Before> events;
};

// What a stream's work is captured in, if it is; or why the work is refused.
struct Captured {
    Capture* graph = nullptr;
    int error = SUCCESS;
};
Captured capture_on(void* stream);

int capture(Capture& into, void* stream, Work work);
int capture_launch(
    Capture& into, void* stream, const void* kernel, const Geometry& geometry, void** arguments, bool cooperative);
// `waits`: the host waits for it, as no captured work can be waited for.
int run_or_capture(void* stream, bool waits, Work work);

// For events. True: it is part of a capture, and nothing else is to be done.
bool capture_record(void* stream, void* event);
bool capture_wait(void* stream, void* event);

// What no graph can hold breaks a capture, unless it is relaxed: the error then.
int stop_captures();
// The host waits for a stream, an event or the device, as it must not while streams are captured.
int stop_captures_for_wait(void* stream);

}  // namespace sim
