// traces: who touched each granule of global memory in the running launch
//
// Two accesses race when one of them is a plain write, they are by different
// threads, and nothing orders them: within a block its barriers, fences and
// flags (Warp::seen), between blocks what they hand over. Each granule
// remembers its last plain writer and two of those who touched it otherwise,
// if possible of two blocks: any writer differs from one of them, in whatever
// order the blocks run. A plain read beside an atomic of another thread is a
// data race too by the letter of the memory model (PTX ISA 8.10), but left
// alone here: looking at a maximum before atomicMax is sound in practice and
// cannot be told from a forgotten barrier. In shared memory it is reported.
// Lines that warps write as a whole, one thread after the
// other, have a single trace, of the first of these threads.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "finding.h"
#include "handover.h"
#include "memory.h"
#include "program.h"

namespace sim {

struct Warp;

// block:20 | clock:13 | thread:10 | pc:18 | width:3; 0: nobody
using Trace = u64;
constexpr u32 TRACE_BLOCKS = 1 << 20;
constexpr u32 TRACE_CLOCKS = (1 << 13) - 1;  // this one and later ones are not told apart
constexpr int BLOCK_SHIFT = 44, CLOCK_SHIFT = 31, THREAD_SHIFT = 21, PC_SHIFT = 3;

inline u32 trace_block(Trace t) {
    return u32(t >> BLOCK_SHIFT);
}
inline u32 trace_clock(Trace t) {
    return u32(t >> CLOCK_SHIFT) & TRACE_CLOCKS;
}
inline u32 trace_thread(Trace t) {
    return u32(t >> THREAD_SHIFT) & 1023;
}
inline u32 trace_pc(Trace t) {
    return u32(t >> PC_SHIFT) & 0x3ffff;
}
inline u32 trace_width(Trace t) {  // log2 of the bytes of each thread, in the trace of a line
    return u32(t) & 7;
}

struct Clash {
    Trace earlier = 0;
    u64 address = 0;
    int lane = 0;
};

// What to say of a race, beginning with what it is on. The finding stands at
// the read where there is one, else at the later plain write, whichever came
// first.
Finding race_between(Warp& warp, const Clash& clash, const std::string& begin);

class Traces {
 public:
    // `together`: several host threads run the blocks.
    Traces(size_t allocations, u32 granule_shift, bool handing_over, bool together);
    ~Traces();

    // Notes the accesses of the lanes, all in one allocation; true where one races
    // with an earlier access.
    bool note(
        Warp& warp, const Allocation& allocation, Mask mask, const u64* a, u32 bytes, Access access, bool strong,
        Clash*);

    Trace trace_of(const Warp& warp) const;  // of its first lane, now
    Handover handover;

 private:
    struct Layer {
        u64 base = 0, lines = 0, granules = 0;
        Trace* line = nullptr;  // or PARTED: its granules have their own
        Trace *writer = nullptr, *reader = nullptr, *other = nullptr;
        std::atomic<bool> read{false};  // `reader` and `other` are in use
        ~Layer();
    };

    Layer& layer(const Allocation& allocation);
    bool ordered(Warp& warp, Trace earlier, Trace me);
    bool fill(Layer& layer, Trace me, u64 offset, u32 bytes);
    void part(Layer& layer, u64 line);
    bool known(const Layer& layer, u64 granule, Trace me) const;
    bool note_write(Warp& warp, Layer& layer, u64 granule, Trace me, Clash* clash);
    bool note_other(Warp& warp, Layer& layer, u64 granule, Trace me, Clash* clash);
    std::atomic_flag* lock_of(u64 offset) { return locks_ + (offset >> LOCK_SHIFT) % LOCKS; }
    u64 line_of(u64 granule) const { return granule >> (LINE_SHIFT - shift_); }

    static constexpr int LINE_SHIFT = 6, LOCK_SHIFT = 12, LOCKS = 64;
    static constexpr Trace PARTED = 1;
    const u32 shift_;
    const bool handing_over_, together_;
    std::vector<std::atomic<Layer*>> layers_;
    std::mutex mutex_;
    std::atomic_flag locks_[LOCKS] = {};
};

}  // namespace sim
