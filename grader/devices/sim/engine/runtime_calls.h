// runtime_calls: the calls of the CUDA runtime that run something, move bytes or order streams
//
// They are noted as they come; grader/devices/runtime_calls.py says what a line of the text means.
#pragma once
#include <string>
#include <vector>

#include "scalar.h"

namespace sim {

struct RuntimeCall {
    enum Flag : u32 { TO_HOST = 1, FROM_HOST = 2, WAITS = 4, TOUCHES = 8, NON_BLOCKING = 16 };
    const char* verb;
    std::string name;
    const void* stream = nullptr;
    const void* event = nullptr;
    u32 flags = 0;
    const void* to = nullptr;
    const void* from = nullptr;
    u64 bytes = 0;
    u64 to_extent = 0, from_extent = 0;  // in which the bytes lie; 0: in as many
};

class RuntimeCalls {
 public:
    void clear();
    void note(RuntimeCall call);
    std::string text() const;  // a line each

 private:
    std::vector<RuntimeCall> noted_;
    bool lost_ = false;
};

}  // namespace sim
