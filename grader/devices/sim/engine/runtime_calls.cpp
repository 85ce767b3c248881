#include "runtime_calls.h"

namespace sim {

void RuntimeCalls::clear() {
    noted_.clear();
    lost_ = false;
}

void RuntimeCalls::note(RuntimeCall call) {
    constexpr size_t MOST = 1 << 16;
    lost_ = noted_.size() == MOST;
    if (!lost_) noted_.push_back(std::move(call));
}

std::string RuntimeCalls::text() const {
    const auto number = [](const void* address) { return std::to_string(reinterpret_cast<u64>(address)) + " "; };
    std::string text = "call\n";
    for (const RuntimeCall& c : noted_) {
        const std::string bytes = std::to_string(c.bytes) + " ";
        text += c.verb + (" " + std::to_string(c.flags)) + " " + number(c.stream) + number(c.event);
        text += number(c.to) + (c.to_extent ? std::to_string(c.to_extent) + " " : bytes);
        text += number(c.from) + (c.from_extent ? std::to_string(c.from_extent) + " " : bytes) + bytes + c.name + "\n";
    }
    return text + (lost_ ? "lost\n" : "");
}

}  // namespace sim
