// poison: values that no lane may use
//
// The compiler may move a load of inline assembly above the check that guards it (ld.global.nc reads what no one
// writes, so nothing forbids it; __ldg of a half is one), and a lane may shuffle from one that takes no part and throw
// the result away. What such an instruction gives is a finding once something depends on it: a store, an address, a
// branch. Until then it follows moves and arithmetic from register to register.
#pragma once
#include <vector>

#include "finding.h"
#include "program.h"

namespace sim {

class Poisons {
 public:
    bool empty() const { return places_.empty(); }
    void clear() {
        places_.clear();
        causes_.clear();
    }
    // Why values are poison: the finding that their use will be, at the instruction that gave them.
    u32 add_cause(Finding finding);
    void taint(s32 row, Mask lanes, u32 cause);
    // A lane of a row gets what a lane of another row, or of the same, had before.
    void taint_as(const Poisons& before, s32 row, int lane, s32 source, int source_lane);
    void heal(s32 row, Mask lanes);
    Mask lanes(s32 row) const;
    // Before an instruction runs for the lanes: its results are poison where its operands are. Stops where it uses one.
    void follow(Warp& warp, const Instruction& in, Mask mask);
    void check_guard(Warp& warp, const Instruction& in, Mask group) const;

 private:
    struct Tainted {
        s32 row;
        Mask lanes;
        u32 cause;
    };
    std::vector<Tainted> of_sources(const Warp& warp, const Instruction& in, int first, int last, Mask mask) const;
    void use(Warp& warp, s32 row, Mask mask) const;
    void use_all(Warp& warp, const Instruction& in, int first, int last, Mask mask) const;

    std::vector<Tainted> places_;
    std::vector<Finding> causes_;
};

}  // namespace sim
