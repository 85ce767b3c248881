// counters: what a kernel's instructions cost, as its warps execute them
//
// A counted launch runs a copy of its program in which every instruction stands
// behind one that counts it; any other launch pays nothing. Accesses are grouped as
// a warp issues them.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory.h"
#include "program.h"

namespace sim {

struct Warp;

// Of one instruction of the program.
struct Cost {
    u64 executed = 0, lanes = 0;
    u64 divergent = 0;                                       // branches that part the lanes
    u64 requests = 0, sectors = 0, ideal_sectors = 0;        // global memory, sectors of 32 bytes
    u64 accesses = 0, wavefronts = 0, ideal_wavefronts = 0;  // shared memory, wavefronts of 128 bytes
    u64 bytes_read = 0, bytes_written = 0;                   // global memory
    u64 tma_copies = 0, tma_bytes = 0;                       // copies in bulk, of all bytes of their boxes
    u64 tma_filled_bytes = 0;                                // of those, outside of the tensor
    u64 box_rows = 0;
    u64 phase_waits = 0, open_phase_waits = 0;  // at mbarriers; those that found their phase open

    void add(const Cost& other);
};

// One access as a warp issued it: the first of the first warp of the first block that came to the instruction.
struct Sample {
    u32 block[3] = {};
    u32 warp = 0;
    Mask mask = 0;
    u32 bytes = 0;     // of a lane
    u32 together = 0;  // lanes that shared memory may serve at once
    Access access = Access::read;
    u64 address[LANES] = {};

    bool before(const Sample& other) const;
};

class Counters {
 public:
    explicit Counters(size_t instructions) : cost(instructions) {}
    void add(const Counters& other);
    void clear();
    void global(const Warp& warp, Mask mask, const u64* address, u32 bytes, Access access);
    // `is_load`: a plain one, ld
    void shared(const Warp& warp, Mask mask, const u64* address, u32 bytes, Access access, bool is_load = false);
    void bulk(const Warp& warp, u64 address, u32 bytes, Access access);  // a row of a copy in bulk
    void tma(const Warp& warp, u64 bytes, u64 filled, u64 rows);         // that copy
    // A core matrix of a product: eight rows of 16 bytes
    void core_matrix(const Warp& warp, const u64* address);
    void wait(const Warp& warp, bool open);   // of lanes that come to a wait, not of those that try again
    void hit(Mask mask, const u64* address);  // atomics
    u64 most_hits() const;

    std::vector<Cost> cost;
    std::map<std::pair<u32, bool>, Sample> samples;  // by instruction, and whether it is shared memory's side of it

 private:
    void keep(const Warp& warp, bool is_shared, Mask mask, const u64* address, u32 bytes, u32 together, Access access);

    std::unordered_map<u64, u64> hits_;  // of each address
};

struct Wavefronts {
    u32 together;  // lanes that may be served at once
    u64 count, ideal;
};
Wavefronts wavefronts_of(Mask mask, const u64* address, u32 bytes, Access access, bool is_load);

// The same program, counted: it outlives neither the plain one nor its launch.
std::unique_ptr<Program> counted(const Program& plain);

// The totals of a kernel, its lines that cost most and one access of each instruction there, as a JSON object.
std::string json(
    const Counters& counters, const Program& program, const Memory& memory, const std::string& source, u64 launches);

}  // namespace sim
