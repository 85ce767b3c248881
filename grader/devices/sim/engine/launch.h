// launch: one kernel launch: its program, its geometry, its parameters, and
// what went wrong
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "finding.h"
#include "memory.h"
#include "program.h"

namespace sim {

struct Block;
class Births;
class Counters;
class GlobalShadow;
class Heap;
class Trail;
class Watch;

struct SourceLine {
    std::string file;
    u32 line = 0;
};

// The learner's own line of a location: what a header's code was inlined into.
SourceLine source_line(const ptx::Module& module, u32 location, const std::string& source);
// The lines of the learner's file that it was inlined into, from the inside out.
std::vector<u32> caller_lines(const ptx::Module& module, u32 location, const std::string& source);

struct Launch {
    const Program* program = nullptr;
    Memory* memory = nullptr;
    std::string source;  // path of the learner's file
    u32 grid[3] = {1, 1, 1};
    u32 block[3] = {1, 1, 1};
    u32 cluster[3] = {1, 1, 1};  // blocks
    u64 dynamic_shared = 0;
    u64 stack_bytes = 0;  // of a thread
    u64 seed = 0;         // of what is left to chance, but for the order in which blocks start:
    u64 order = 0;        // two calls with one order, the second backwards, start any two blocks in either order
    bool backwards = false;
    int threads = 1;
    u64 resident = 0;  // blocks that the card runs at the same time; 0: as many as fit into the simulator's memory
    std::vector<u8> parameters;
    u64 limit = 0;  // warp instructions that a call may execute
    const std::vector<bool>* before =
        nullptr;        // allocations that the launch before wrote, where this one may overlap it
    u64 workspace = 0;  // device address of what grid.sync() counts in; 0: the launch is not cooperative
    GlobalShadow* global_shadow = nullptr;  // null: races in global memory are not looked for
    Counters* counters = nullptr;           // null: nothing is counted
    Births* births = nullptr;               // null: where nan and inf come from is not noted
    Trail* trail = nullptr;                 // null: what depends on an element is not noted
    bool forgives_copies = false;           // see sim_forgive_copies
    bool distrusts_volatile = false;        // volatile loads and stores of shared memory race like plain ones
    Heap* heap = nullptr;                   // of a kernel that calls malloc or free
    Watch* watch = nullptr;                 // null: no element is watched

    mutable std::atomic<bool> stop{false};
    mutable std::mutex mutex;
    mutable std::unique_ptr<Finding> finding;    // the first one
    mutable std::unique_ptr<Finding> suspicion;  // an uninitialised read that may yet turn out to be a race
    mutable std::unique_ptr<Finding> objection;  // to what CUDA leaves undefined and cards happen to run
    mutable std::atomic<bool> suspects{false};
    mutable u64 suspected_until = 0;  // so many warp instructions executed: it is as good as found
    // pc + 1 of the first instruction, of those executed, that gives another result in another order of threads: of
    // float atomics, which round, and of those whose old value is read. 0: none.
    mutable std::atomic<u32> float_atomic{0}, other_atomic{0};
    mutable std::string printed;  // by printf, bounded
    // Warp instructions: of the whole call up to now, so that their sum is held against the limit; and their lanes.
    mutable std::atomic<u64> executed{0}, executed_lanes{0};

    u64 threads_per_block() const { return u64(block[0]) * block[1] * block[2]; }
    u64 blocks() const { return u64(grid[0]) * grid[1] * grid[2]; }
    u32 blocks_per_cluster() const { return cluster[0] * cluster[1] * cluster[2]; }
    bool elects_last() const { return seed & 1; }  // of elect.sync: the last lane of its mask, not the first
    u64 shared_bytes() const { return program->dynamic_base + dynamic_shared; }

    void keep(Finding finding) const;  // the first stops the launch
    void suspect(Finding finding) const;
    void object(Finding finding) const;  // the launch goes on; any other finding comes first
    void note_order(u32 pc, bool is_float) const {
        std::atomic<u32>& first = is_float ? float_atomic : other_atomic;
        const u32 known = first.load(std::memory_order_relaxed);
        if (!known || pc + 1 < known) first.store(pc + 1, std::memory_order_relaxed);
    }
    void print(const std::string& text) const;
};

// Runs all blocks on the launch's threads; returns when they are done or the
// launch has been stopped.
void run_grid(Launch& launch);

}  // namespace sim
