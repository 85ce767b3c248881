// watch: who last wrote the elements that somebody asked about
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "finding.h"
#include "program.h"

namespace sim {

struct Warp;

class Watch {
 public:
    void clear() { places_.clear(); }
    bool empty() const { return places_.empty(); }
    void add(std::string key, u64 address, u32 bytes);
    void note(const Warp& warp, Mask mask, const u64* a, u32 bytes);  // a kernel writes
    void note(const char* what, u64 address, u64 bytes);              // the runtime does
    std::string json() const;  // {key: its last writer}, without those that nobody wrote

 private:
    struct Watched {
        std::string key;
        u64 address;
        u32 bytes;
        bool written;
        Site writer;
    };
    std::mutex mutex_;
    std::vector<Watched> places_;
};

}  // namespace sim
