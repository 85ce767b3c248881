// poison: values that no lane may use
//
// The compiler may move an asm statement's ld.global.nc above the check that guards it: it reads what no one writes, so
// nothing forbids it (__ldg of half is one). A lane may shuffle from one that takes no part and throw the result away.
// An asm statement may load from shared memory what no thread has written. What such an instruction gives is a finding
// once something depends on it: a store, an address, a branch. Until then it follows moves and arithmetic from register
// to register.
#pragma once
#include <map>
#include <unordered_map>
#include <vector>

#include "finding.h"
#include "program.h"

namespace sim {

class Poisons {
 public:
    // The lanes of a register that hold poison, and of each the cause. Causes are numbered in the order of time.
    struct Row {
        Mask lanes = 0;
        u32 cause[LANES] = {};
    };
    bool empty() const { return rows_.empty(); }
    void clear() {
        rows_.clear();
        causes_.clear();
    }
    // Why values are poison: the finding that their use will be, at the instruction that gave them.
    // It is a finding there, or where the value is used.
    enum class Place : u8 { cause, use };
    u32 add_cause(Finding finding, Place place);
    void taint(s32 row, Mask lanes, u32 cause);
    // A lane of a row gets what a lane of another row, or of the same, had before.
    void taint_as(const Row& before, s32 row, int lane, int source_lane);
    void heal(s32 row, Mask lanes);
    Row at(s32 row) const;
    // Before an instruction runs for the lanes: its results are poison where its operands are. Stops where it uses one.
    void follow(Warp& warp, const Instruction& in, Mask mask);
    void check_guard(Warp& warp, const Instruction& in, Mask group) const;

 private:
    Row of_sources(const Warp& warp, const Instruction& in, int first, int last, Mask mask) const;
    void pass_on(Warp& warp, const Instruction& in, int results, int first, int last, Mask mask);
    void use(Warp& warp, s32 row, Mask mask) const;
    void use_all(Warp& warp, const Instruction& in, int first, int last, Mask mask) const;
    void forget_healed();

    std::unordered_map<s32, Row> rows_;  // those that hold any
    struct Cause {
        Finding finding;
        Place place;
    };
    std::map<u32, Cause> causes_;
    u32 next_ = 0;
    size_t most_ = 4096;  // causes, before those of values that are gone are looked for
};

}  // namespace sim
