// mbarrier: the barrier objects that a block keeps in shared memory
//
// The object's state lives here, beside the bytes that it occupies. A phase ends
// when no arrival and no byte of a copy is pending; a wait for a phase that has
// ended knows what those who arrived knew. PTX ISA 9.7.13.15, "mbarrier".
#pragma once
#include <map>
#include <vector>

#include "copies.h"
#include "clock.h"
#include "program.h"
#include "warp.h"

namespace sim {

struct Block;

struct MBarrier {
    u32 expected = 0;
    s64 pending = 0;  // arrivals of this phase that are still to come
    s64 bytes = 0;    // of copies that are still to come
    u64 phase = 0;
    VectorClock arrived, completed;
    Mask waiting[WARPS_PER_BLOCK] = {};  // of each warp
    struct Arrival {
        u32 count;
        VectorClock known;
    };
    std::vector<Arrival> after_copies;  // arrivals by cp.async.mbarrier.arrive
};

class MBarriers {
 public:
    explicit MBarriers(Block& block) : block_(block) {}
    void forget();

    void initialise(Warp& warp, u64 address, u32 count);
    void invalidate(u64 address) { barriers_.erase(address); }
    MBarrier& find(const Warp& warp, int lane, u64 address);
    void expect(MBarrier& barrier, s64 bytes) { barrier.bytes += bytes; }
    void complete_bytes(MBarrier& barrier, s64 bytes);
    void arrive(Warp& warp, int lane, MBarrier& barrier, u32 count, bool drops);
    // cp.async.mbarrier.arrive
    void arrive_after_copies(Warp& warp, Mask lanes, u64 address, bool increments);
    // A bulk copy that completes on the barrier.
    void attach(Warp& warp, int lane, u64 address, BulkCopy copy);
    // Whether the phase has ended; what it still waits for may land for it.
    bool has_ended(u64 address, MBarrier& barrier, u64 phase);
    void suspend(Warp& warp, int lane, MBarrier& barrier);
    bool is_refused(const Warp& warp, int lane) const { return refused_[warp.index] >> lane & 1; }
    void answer(const Warp& warp, int lane) { refused_[warp.index] &= ~(Mask(1) << lane); }

    // Those who wait are told "not yet" once; false where that has led nowhere for long.
    bool wake();
    bool any_waiting() const;
    [[noreturn]] void deadlock();

 private:
    void advance(MBarrier& barrier);
    void resume(MBarrier& barrier);

    Block& block_;
    std::map<u64, MBarrier> barriers_;
    Mask refused_[WARPS_PER_BLOCK] = {};
    u32 wakes_ = 0;  // since a phase ended
};

}  // namespace sim
