// mbarrier: the barrier objects that a block keeps in shared memory
//
// The object's state lives here, beside the bytes that it occupies. A phase ends
// when no arrival and no byte of a copy is pending; a wait for a phase that has
// ended knows what those who arrived knew. PTX ISA 9.7.13.15, "mbarrier".
#pragma once
#include <deque>
#include <map>
#include <vector>

#include "copies.h"
#include "clock.h"
#include "finding.h"
#include "phases.h"
#include "program.h"
#include "warp.h"

namespace sim {

struct Block;

struct MBarrier {
    u32 expected = 0;
    s64 pending = 0;  // arrivals of this phase that are still to come
    s64 bytes = 0;    // of copies that are still to come
    u64 phase = 0;
    u32 initial = 0;  // arrivals that mbarrier.init asked for
    Phases phases;    // who did what in the last ones
    VectorClock arrived;
    std::deque<VectorClock> ends;        // what was known when each of the last phases ended, the latest last
    Mask waiting[WARPS_PER_BLOCK] = {};  // of each warp
    struct Step {
        u32 pc = 0, rank = 0, warp = 0;
        int lane = 0;
    };
    Step expecting;  // the last expect_tx
    Step initialising;
    u32 made_at = 0;       // the clock of its warp then
    bool expects = false;  // there was one
    struct Arrival {
        u32 pc, warp;
        Mask lanes;
        VectorClock known;
    };
    std::vector<Arrival> after_copies;  // arrivals by cp.async.mbarrier.arrive
    struct Passed {                     // the last wait for a parity that ended
        bool any = false;
        u32 pc = 0, parity = 0;
        u64 ended = 0;  // phases that had
    };
    Passed passed;
    std::map<u32, std::deque<LastWait>> waits;  // of each warp: its last ones that ended, the latest last
};

class MBarriers {
 public:
    explicit MBarriers(Block& block) : block_(block) {}
    void forget();

    void initialise(Warp& warp, int lane, u64 address, u32 count);
    void invalidate(u64 address) { barriers_.erase(address); }
    MBarrier& find(const Warp& warp, int lane, u64 address);
    const MBarrier* known(u64 address) const {
        const auto found = barriers_.find(address);
        return found == barriers_.end() ? nullptr : &found->second;
    }
    void expect(const Warp& warp, int lane, MBarrier& barrier, s64 bytes);
    void complete_bytes(MBarrier& barrier, s64 bytes);
    void complete_bytes(const Warp& warp, int lane, MBarrier& barrier, s64 bytes);  // by an instruction
    void arrive(Warp& warp, int lane, MBarrier& barrier, u32 count, bool drops);
    // cp.async.mbarrier.arrive
    void arrive_after_copies(Warp& warp, Mask lanes, u64 address, bool increments);
    // A bulk copy that completes on the barrier.
    void attach(Warp& warp, int lane, u64 address, BulkCopy copy);
    // Whether the phase has ended; what it still waits for may land for it.
    bool has_ended(u64 address, MBarrier& barrier, u64 phase);
    // The lanes know what those knew who ended that phase.
    void acquire_end(Warp& warp, Mask lanes, const MBarrier& barrier, u64 phase);
    // The same after a wait for a parity: an earlier phase than the last may have ended it. It is the first that the
    // lane does not know of yet. Gives the phase, or -1 where it is not clear which one it is.
    s64 acquire_parity(Warp& warp, Mask lanes, const MBarrier& barrier, u32 parity);
    void suspend(Warp& warp, int lane, MBarrier& barrier);
    void passes(const Warp& warp, u64 address, MBarrier& barrier, s64 phase);
    const LastWait& last_wait(const Warp& warp) const { return last_[warp.index]; }
    // A wait of the warp that was for a phase whose end an earlier wait of it had been for: the two, the later one
    // last; null where its last wait before that group of wgmma was for another phase.
    struct Twice {
        const LastWait* first = nullptr;
        const LastWait* again = nullptr;
    };
    Twice waited_twice(const Warp& warp, u64 address, u32 group) const;
    // The phase that the wait was for, if it is known and has ended; else null.
    const Phase* phase_of(const LastWait& wait) const;
    bool is_refused(const Warp& warp, int lane) const { return refused_[warp.index] >> lane & 1; }
    void answer(const Warp& warp, int lane) { refused_[warp.index] &= ~(Mask(1) << lane); }
    // The lanes at a wait that have not tried before; `ended`: whose wait is over.
    Mask first_tries(const Warp& warp, Mask lanes, Mask ended) {
        Mask& tried = tried_[warp.index];
        const Mask first = lanes & ~tried;
        tried = (tried | lanes) & ~ended;
        return first;
    }

    // Those who wait are told "not yet" once; false where that has led nowhere for long.
    bool wake();
    bool any_waiting() const;
    [[noreturn]] void deadlock();
    void finish();  // the block ends

    // ---- sentences for a finding
    std::string name(u64 address) const;
    // "phase 0 of bar: 3 of 96 arrivals (mbarrier.init on line 7), 3 on line 9 by ...".
    std::string words_on(u64 address, const MBarrier& barrier, const Phase& phase) const;
    // A wait, and what its phase ended with; nothing where there was none. `whose`: "the last wait of ...".
    std::string words_on(const LastWait& wait, const std::string& whose) const;
    std::string words_on_last_wait(const Warp& warp) const;
    // For a read of bytes that no thread has written: the phase that the last wait was for.
    std::vector<std::string> words_on_unwritten(const Warp& warp) const;
    // For a bulk copy of another block that comes after the phase that the wait was for, before bytes are announced for
    // a later one: what comes and what was announced. Else nothing.
    std::string words_on_unannounced(const LastWait& wait, const BulkCopy& copy) const;
    // For a race: a wait that ended, and that the other thread had arrived before it touched the place at that clock.
    // Nothing where it had not.
    std::vector<std::string> words_on_early(
        const LastWait& wait, const std::string& whose, u32 rank, u32 thread, u32 clock, const std::string& does) const;

    const std::map<u64, MBarrier>& all() const { return barriers_; }

 private:
    [[noreturn]] void too_many_bytes(const MBarrier& barrier, u64 address, s64 bytes, const BulkCopy* copy);
    void note(const Warp& warp, int lane, MBarrier& barrier, u32 arrivals, s64 announced, s64 came) const;
    void note_copy(const BulkCopy& copy, MBarrier& barrier) const;
    void release_here(Warp& warp, int lane, VectorClock& released) const;
    void advance(MBarrier& barrier);
    void resume(MBarrier& barrier);

    Block& block_;
    std::map<u64, MBarrier> barriers_;
    LastWait last_[WARPS_PER_BLOCK];
    Mask refused_[WARPS_PER_BLOCK] = {}, tried_[WARPS_PER_BLOCK] = {};
    u32 wakes_ = 0;  // since a phase ended
};

}  // namespace sim
