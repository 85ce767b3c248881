// counters: what a kernel's instructions cost, as its warps execute them
//
// A counted launch runs a copy of its program in which every instruction stands
// behind one that counts it; any other launch pays nothing. Accesses are grouped as
// a warp issues them.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "program.h"

namespace sim {

struct Warp;

// Of one instruction of the program.
struct Cost {
    u64 executed = 0, lanes = 0;
    u64 divergent = 0;                                 // branches that part the lanes
    u64 requests = 0, sectors = 0, ideal_sectors = 0;  // global memory, sectors of 32 bytes
    u64 accesses = 0, waves = 0, ideal_waves = 0;      // shared memory, waves of 128 bytes
    u64 bytes_read = 0, bytes_written = 0;             // global memory

    void add(const Cost& other);
};

class Counters {
 public:
    explicit Counters(size_t instructions) : cost(instructions) {}
    void add(const Counters& other);
    void clear();
    void global(u32 pc, Mask mask, const u64* address, u32 bytes, Access access);
    void shared(u32 pc, Mask mask, const u64* address, u32 bytes, Access access);
    void hit(Mask mask, const u64* address);  // atomics
    u64 most_hits() const;

    std::vector<Cost> cost;

 private:
    std::unordered_map<u64, u64> hits_;  // of each address
};

// The same program, counted: it outlives neither the plain one nor its launch.
std::unique_ptr<Program> counted(const Program& plain);

// The totals of a kernel and its lines that cost most, as a JSON object.
std::string json(const Counters& counters, const Program& program, const std::string& source, u64 launches);

}  // namespace sim
