// global_shadow: who touched each granule of global memory in the running launch
//
// Two accesses race when one of them is a plain write, they are by different
// threads, and nothing orders them: within a block its barriers, fences and
// flags (Warp::known), between blocks what they release and acquire. Each granule
// remembers its last plain writer and two of those who touched it otherwise,
// if possible of two blocks: any writer differs from one of them, in whatever
// order the blocks run. An atomic takes the place of other blocks' atomics, which
// it has seen. A plain read beside an atomic of another thread is a
// data race too by the letter of the memory model (PTX ISA 8.10), but left
// alone here: looking at a maximum before atomicMax is sound in practice and
// cannot be told from a forgotten barrier. In shared memory it is reported.
// Lines that warps write as a whole, one thread after the
// other, have a single epoch, of the first of these threads.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "epoch.h"
#include "finding.h"
#include "memory.h"
#include "program.h"
#include "release_acquire.h"

namespace sim {

struct Warp;

// What to say where a copy's source was written before the copy was waited for; the finding stands at the write.
Finding race_of_copy(const Warp& warp, u32 copy_pc, int copy_lane, Epoch writer, const std::string& begin);

// What to say of a race, beginning with what it is on. The finding stands at
// the read where there is one, else at the later plain write, whichever came
// first.
Finding race_between(Warp& warp, const Race& race, const std::string& begin);

class GlobalShadow {
 public:
    // `together`: several host threads run the blocks.
    GlobalShadow(size_t allocations, u64 blocks, u32 granule_shift, bool fences, bool together);
    ~GlobalShadow();

    // Records the accesses of the lanes, all in one allocation; true where one races
    // with an earlier access.
    bool record(
        Warp& warp, const Allocation& allocation, Mask mask, const u64* a, u32 bytes, Access access, bool strong,
        Race*);

    Epoch epoch_of(const Warp& warp) const;  // of its first lane, now
    // The last plain writes of these bytes, one epoch for each granule.
    std::vector<Epoch> writers(const Allocation& allocation, u64 address, u32 bytes);
    std::vector<bool> written() const;  // allocations, by their window, that the launch has written
    u64 granule(u64 address) const { return address >> shift_ << shift_; }
    u64 granule_bytes() const { return u64(1) << shift_; }
    ReleaseAcquire release_acquire;
    const global_epoch::Layout epochs;

 private:
    struct AllocationShadow {
        u64 base = 0, lines = 0, granules = 0;
        Epoch* line = nullptr;  // or SPLIT: its granules have their own
        Epoch *writer = nullptr, *reader = nullptr, *other = nullptr;
        std::atomic<bool> read{false};  // `reader` and `other` are in use
        std::atomic<bool> written{false};
        ~AllocationShadow();
    };

    AllocationShadow& shadow_of(const Allocation& allocation);
    Epoch writer_of(const AllocationShadow& shadow, u64 granule) const;
    bool ordered(Warp& warp, Epoch earlier, Epoch me);
    bool fill(AllocationShadow& shadow, Epoch me, u64 offset, u32 bytes);
    void split(AllocationShadow& shadow, u64 line);
    bool redundant(const AllocationShadow& shadow, u64 granule, Epoch me) const;
    bool record_write(Warp& warp, AllocationShadow& shadow, u64 granule, Epoch me, Race* race);
    bool record_other(Warp& warp, AllocationShadow& shadow, u64 granule, Epoch me, Access access, Race* race);
    std::atomic_flag* lock_of(u64 offset) { return locks_ + (offset >> LOCK_SHIFT) % LOCKS; }
    u64 line_of(u64 granule) const { return granule >> (LINE_SHIFT - shift_); }

    static constexpr int LINE_SHIFT = 6, LOCK_SHIFT = 12, LOCKS = 64;
    static constexpr Epoch SPLIT = 1;
    const u32 shift_;
    const bool fences_, together_;
    std::vector<std::atomic<AllocationShadow*>> shadows_;
    std::mutex mutex_;
    std::atomic_flag locks_[LOCKS] = {};
};

}  // namespace sim
