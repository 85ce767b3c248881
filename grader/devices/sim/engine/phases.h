// phases: who arrived in the last phases of an mbarrier, on which lines, and which bytes were announced and came
#pragma once
#include <string>
#include <vector>

#include "program.h"

namespace sim {

struct Block;
struct Warp;

// What lanes of a warp did in a phase by one instruction.
struct PhaseStep {
    u32 pc = 0, rank = 0, warp = 0;
    Mask lanes = 0;
    u64 arrivals = 0;
    s64 announced = 0, came = 0;  // bytes
    u32 clock = 0;                // of the warp, when it last arrived
    u32 multiplied = 0;           // the last group of wgmma that it had begun then
};

struct Phase {
    u64 number = 0;
    u32 expected = 0;  // arrivals
    std::vector<PhaseStep> steps;

    PhaseStep& step(u32 pc, u32 rank, u32 warp, Mask lanes);
    const PhaseStep* arrival_of(u32 rank, u32 warp, Mask lanes) const;  // null: none of these lanes has arrived
    u64 arrivals() const;
};

// A wait for an mbarrier that ended.
struct LastWait {
    bool any = false;
    bool at_once = false;  // no phase of the mbarrier had ended
    u32 pc = 0;
    u64 address = 0;
    s64 phase = -1;      // whose end it was for; -1: not known
    u32 clock = 0;       // of the warp, when the wait ended
    u32 multiplied = 0;  // the last group of wgmma that it had begun then
};

class Phases {
 public:
    void begin(u64 number, u32 expected);
    Phase& now() { return kept_[now_ % KEPT]; }
    const Phase& now() const { return kept_[now_ % KEPT]; }
    const Phase* find(u64 number) const {  // null: it was long ago
        return number <= now_ && now_ - number < KEPT ? &kept_[number % KEPT] : nullptr;
    }

 private:
    static constexpr u64 KEPT = 4;
    Phase kept_[KEPT];
    u64 now_ = 0;
};

// "thread (0,0,0)", "128 threads, (128,0,0) to (255,0,0)": of these steps, which are of one block.
std::string threads_of(const Block& owner, const std::vector<const PhaseStep*>& steps);
// "128 on line 112 by ...; bytes announced: ...; bytes that came: ..."; nothing for an empty phase.
std::string words_of(const Block& owner, const Phase& phase);

}  // namespace sim
