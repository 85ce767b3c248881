// block: the warps of one thread block, its shared memory and its barriers
//
// A block lives on one host thread at a time and can be set aside between any
// two instructions: all its state is data.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "clock.h"
#include "copies.h"
#include "counters.h"
#include "finding.h"
#include "launch.h"
#include "mbarrier.h"
#include "memory.h"
#include "ordering.h"
#include "register_pool.h"
#include "release_acquire.h"
#include "shared.h"
#include "tensor_map.h"
#include "warp.h"
#include "warpgroup.h"

namespace sim {

enum class Reduction : u8 { none, popc, all, any };

struct Barrier {
    u32 expected = 0;  // threads; 0: all of the block
    u32 arrived = 0;   // by bar.arrive, without waiting
    u32 pc = 0;        // of the first to come
    bool open = false;
    Mask waiting[WARPS_PER_BLOCK] = {};  // of each warp
    VectorClock released;                // by those who arrived without waiting
    u32 votes = 0, voters = 0;
};

constexpr int BARRIERS = 16;

class Cluster;

// What a block's turn has led to: none of its threads can go on until another block does something.
enum class Turn : u8 { finished, ran, blocked };

struct Block {
    Block(const Launch& launch, Cluster& cluster, u32 rank);

    void start(u64 linear, u32 origin);  // becomes this block of the grid
    Turn run(u64 budget);                // throws Halt
    [[noreturn]] void deadlock();
    bool waits() const;                              // some of its threads do
    void note_visit(const Warp& visitor, int lane);  // of another block, in this one's shared memory
    void leave(Warp& warp, Mask lanes);              // they exit

    // Notes that lanes of a warp wait at a barrier, and lets all go on when they
    // were the last.
    void wait(Warp& warp, Mask lanes, u32 barrier, u32 expected, Mask votes, Reduction op);
    void arrive(Warp& warp, Mask lanes, u32 barrier, u32 expected);

    void fence(Warp& warp, Mask lanes, bool device);  // for the block, or for the whole device
    void fence_proxy(Warp& warp, Mask lanes);         // between the generic and the async proxy
    // Records a volatile or atomic access: flags and locks order what stands around them.
    void record_strong_access(Warp& warp, const Instruction& in, Mask mask, Access access, u8* const* at);

    void settle() {  // what the last strong access has read of other blocks
        if (!releases.read.empty()) settle_reads();
    }

    Site site(const Warp& warp, u32 pc, int lane) const;
    // A finding at the running instruction of a warp. `stop_at` keeps it and
    // unwinds.
    Finding at(const Warp& warp, u32 pc, int lane, FindingKind kind, std::string message) const;
    [[noreturn]] void stop_at(Finding finding);
    SourceLine line_of(u32 pc) const;
    std::string line_words(u32 pc) const;  // "line 7 (called on line 30)", where 7 is in an inlined function
    std::string thread(u32 linear) const;  // "thread (1,0,0)"
    std::string exit_words(const Warp& warp, int lane) const;  // "on line 9", "after the branch on line 7"
    // Of a deadlock, where elect.sync has not chosen the first lane: that PTX leaves it open; else nothing.
    std::string elected_words() const;
    const Extent* extent_of(u64 shared_address) const;  // the array that it lies in; null: none begins before it
    Place shared_place(u64 address, u32 bytes, bool is_outside) const;

    const Launch* launch;
    const Program* program;
    Cluster* cluster;
    u32 rank;                 // in its cluster
    bool exited = false;      // all of its threads have
    bool progressed = false;  // in its last turn
    u32 index[3] = {0, 0, 0};
    std::vector<Warp> warps;
    SharedMemory shared;
    Ordering ordering;
    Copies copies{*this};
    MBarriers mbarriers{*this};
    RegisterPool registers{*this};
    std::map<u64, TensorMap> acquired_maps;  // by address, as they were then
    std::unique_ptr<Warpgroups> warpgroups;  // of a program with wgmma
    std::unique_ptr<Counters> counters;      // null: nothing is counted
    BlockReleases releases;
    u32 origin = 0;       // of the clocks of its warps
    u32 last_clock = 0;   // that any of its warps has had
    VectorClock proxied;  // up to these clocks a proxy fence has come after what the warps wrote
    Barrier barriers[BARRIERS];
    bool yields = false;               // a thread sleeps: other warps get their turn, and then other blocks
    std::unique_ptr<Finding> pending;  // an uninitialised read that may yet turn out to be a race

    u64 random();

 private:
    void fill_constants(Warp& warp);
    void fill_specials(Warp& warp, bool once);
    bool complete(const Barrier& barrier) const;
    void release(Barrier& barrier, Reduction op);
    void synchronise(const Barrier& barrier);
    void check_same_barrier(const Warp& warp, Barrier& barrier, Mask lanes);
    void check_visits();
    [[noreturn]] void deadlock_at_warp_sync(const Warp& warp);
    void account(const Warp& warp);
    void finish();
    void settle_reads();

    std::vector<u8> register_storage_, local_storage_, local_shadow_;
    struct Visit {  // the last one of a warp
        u32 clock = 0, pc = 0;
        int lane = 0;
    };
    std::vector<Visit> visits_;  // [rank][warp]
    u64 random_state_ = 0;
    u64 unaccounted_ = 0;  // warp instructions that the launch's sum does not have yet
};

// What the instruction does without what a counted or traced launch has put before it.
inline const Instruction& plain_of(const Warp& warp) {
    return warp.block->program->plain->code[warp.here];
}

}  // namespace sim
